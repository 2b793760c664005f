// The epoch's batches, and one batch through DataParallel's four steps.

const MOST_ROWS = 12;

function drawEpoch() {
  const dropped = state.data - epoch.samples;
  const parts = [`${counted(epoch.batches, "batch")}, ${counted(epoch.samples, "sample")}.`];
  if (dropped) parts.push(`drop_last leaves out ${counted(dropped, "sample")}.`);
  parts.push(`The GPUs are at work ${percent(epoch.utilization)} of the time that the largest chunks take.`);
  show("epoch-summary", parts.join(" "));
  show("rule", ruleSays(groupNow()));
  show("batches", ...epoch.groups.map(batchButton));
}

/** torch.chunk's rule in words, for one batch. */
function ruleSays(group) {
  const { batchSize, gpus, largest, smallest, idle } = group;
  if (gpus === 1) return "One GPU gets the whole batch.";
  return `The rule: torch.chunk gives ceil(${grouped(batchSize)} / ${gpus}) = ${counted(largest, "row")} to each GPU` +
    (smallest < largest ? `; the last chunk has the ${grouped(smallest)} left over` : "") +
    (idle ? `; none is left for ${counted(idle, "GPU")}` : "") + ".";
}

function batchButton(group) {
  const last = group.first + group.count - 1;
  const chosen = group === groupNow();
  const sizes = group.runs.map((run) => (run.count > 1 ? `${run.count} × ${run.rows}` : run.rows)).join(" + ");
  const idle = group.idle ? make("strong", { class: "warn" }, ` ${counted(group.idle, "GPU")} idle`) : null;
  return make("li", {}, make("button", { type: "button", class: "batch", "aria-pressed": String(chosen),
    onclick: () => change({ batchNumber: group.first }) },
  make("b", {}, `${group.count > 1 ? "Batches" : "Batch"} ${span(group.first, last)}`),
  make("span", {}, `${counted(group.batchSize, "sample")}: ${sizes}`), idle,
  make("span", { class: "pile", "aria-hidden": "true" },
    ...group.runs.flatMap((run) => [...Array(Math.min(run.count, 32)).keys()].map((index) =>
      bar(run.rows, group.batchSize, run.first + index, String(run.first + index)))))));
}

/** Equal chunks in one row where there are many GPUs: [first GPU, how many, rows, start]. */
function laneRows(group) {
  const chunks = chunksOf(group);
  if (group.gpus <= MOST_ROWS) {
    const found = new Map(chunks.map((chunk) => [chunk.gpu, chunk]));
    return [...Array(group.gpus).keys()].map((gpu) => ({ gpu, count: 1, rows: 0, start: 0, ...found.get(gpu) }));
  }
  const rows = runRows(group, chunks);
  return group.idle ? [...rows, { gpu: null, count: group.idle, rows: 0, start: 0 }] : rows;
}

function runRows(group, chunks) {
  const starts = new Map(chunks.map((chunk) => [chunk.gpu, chunk.start]));
  return group.runs.map((run) => ({ gpu: run.first, count: run.count, rows: run.rows, start: starts.get(run.first) }));
}

function laneName({ gpu, count }) {
  if (gpu === null) return `${counted(count, "more GPU")}`;
  return count > 1 ? `${gpuName(gpu)}–${gpu + count - 1}` : gpuName(gpu);
}

/** The copies of each step: from where to where, and what. */
function copiesOf(group) {
  if (group.gpus === 1) return [];
  const others = runRows(group, chunksOf(group)).map(withoutFirst).filter((lane) => lane.count);
  const each = (lane) => (lane.count > 1 ? " each" : "");
  return others.flatMap((lane) => [
    { step: "scatter", from: gpuName(0), to: laneName(lane), what: `${counted(lane.rows, "row")}${each(lane)}` },
    { step: "replicate", from: gpuName(0), to: laneName(lane), what: `parameters and buffers${each(lane)}` },
    { step: "gather", from: laneName(lane), to: gpuName(0), what: `${counted(lane.rows, "row")}${each(lane)}` },
  ]).sort((a, b) => STEPS.indexOf(a.step) - STEPS.indexOf(b.step));
}

/** The chunk of cuda:0 is not copied. */
function withoutFirst(lane) {
  return lane.gpu === 0 ? { ...lane, gpu: 1, count: lane.count - 1 } : lane;
}

function drawSteps() {
  const group = groupNow();
  for (const button of byId("stepper").querySelectorAll("button[data-step]")) {
    button.setAttribute("aria-current", Number(button.dataset.step) === state.step ? "step" : "false");
  }
  byId("previous").disabled = state.step === 0;
  byId("next").disabled = state.step === STEPS.length - 1;
  show("step-says", stepSays(group, STEPS[state.step]));
  show("lanes", lanes(group));
  show("copies", copiesTable(group));
}

function stepSays(group, step) {
  if (group.gpus === 1 && step !== "batch") return "On one GPU DataParallel calls the model itself: it copies nothing.";
  const sizes = chunksOf(group).slice(0, 9).map((chunk) => chunk.rows);
  const more = group.replicas > 9 ? " + …" : "";
  const used = counted(group.replicas, "replica");
  return {
    batch: `A batch of ${counted(group.batchSize, "sample")} lies on cuda:0.`,
    scatter: `scatter cuts it into ${sizes.join(" + ")}${more} and copies each chunk to its GPU. ` + ruleSays(group),
    replicate: `replicate copies the model's parameters and buffers from cuda:0, again in every forward: ${used}.`,
    parallel_apply: `parallel_apply runs ${used} at the same time, each on its own chunk.` +
      (group.idle ? ` ${counted(group.idle, "GPU")} get nothing to do.` : ""),
    gather: `gather joins the outputs on cuda:0, in order: ${sizes.join(" + ")}${more} = ${group.batchSize}.`,
  }[step];
}

function lanes(group) {
  const shown = (step) => (state.step >= step ? "" : "later");
  const rows = laneRows(group).map((lane) => [laneName(lane), ...(lane.rows ? [
    make("span", { class: shown(1) }, bar(lane.rows, group.largest, lane.gpu),
      ` ${counted(lane.rows, "row")}${lane.count > 1 ? " each" : ""}: ${span(lane.start, lane.start + lane.rows * lane.count - 1)}`),
    make("span", { class: shown(2) }, lane.gpu === 0 && lane.count === 1 ? "the model" : "a copy"),
    make("span", { class: shown(3) }, `${counted(lane.rows, "row")} out${lane.count > 1 ? " each" : ""}`),
  ] : [make("strong", { class: `warn ${shown(1)}` }, "idle"), make("span", { class: shown(2) }, "–"),
    make("span", { class: shown(3) }, "–")])]);
  return table(`Batch ${grouped(state.batchNumber)} on ${counted(group.gpus, "GPU")}`,
    ["GPU", "1 scatter", "2 replicate", "3 parallel_apply"], rows);
}

function copiesTable(group) {
  const found = copiesOf(group).filter((copy) => STEPS.indexOf(copy.step) <= state.step);
  if (!found.length) return make("p", {}, "Nothing has been copied between GPUs yet.");
  return table("Copied so far", ["Step", "From → to", "What"],
    found.map((copy) => [copy.step, `${copy.from} → ${copy.to}`, copy.what]));
}
