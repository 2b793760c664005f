// One sample and its way, and what the loss makes of chunks of unequal length.

const MOST_SAMPLES = 256;

function firstSample() {
  const group = groupNow();
  return (state.batchNumber - 1) * state.batch + (group ? 0 : state.data);
}

function drawSample() {
  byId("sample").max = state.data - 1;
  byId("sample").value = state.sample;
  const stop = follow(epoch, state.sample);
  show("sample-says", ...(stop ? sampleSays(stop) : [make("p", {}, `Sample ${grouped(state.sample)} is left out by drop_last.`)]));
  drawSampleGrid();
}

function sampleSays(stop) {
  const { group } = stop;
  const share = group.replicas * stop.rows;
  const facts = [
    ["Batch", `${grouped(stop.batch)}, row ${grouped(stop.outputRow)} of it`],
    ["Chunk and GPU", `chunk of ${counted(stop.rows, "row")} on ${gpuName(stop.gpu)}`],
    ["Row on that GPU", grouped(stop.row)],
    ["Row of the output", `${grouped(stop.outputRow)}, on cuda:0`],
    ["Share of the gradient", `1/${grouped(group.batchSize)} if the loss is averaged over the whole batch; ` +
      `1/${grouped(share)} if each replica averages its own and the means are averaged`],
    ["Loss weight", `${times(group.batchSize / share)} what it should count, where means are averaged`],
  ];
  return [make("dl", {}, ...facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]))];
}

/** The samples of the batch as buttons, one of which is in the tab order; arrows move between them. */
function drawSampleGrid() {
  const group = groupNow();
  if (group.batchSize > MOST_SAMPLES) {
    show("samples", make("p", {}, `Type a number to follow one of these ${grouped(group.batchSize)} samples.`));
    return;
  }
  const start = firstSample();
  const chosen = Math.min(Math.max(state.sample - start, 0), group.batchSize - 1);
  const buttons = chunksOf(group).flatMap((chunk) => [...Array(chunk.rows).keys()].map((row) => {
    const sample = start + chunk.start + row;
    return make("button", { type: "button", class: `sample ${hueOf(chunk.gpu)}`, "data-sample": sample,
      "aria-pressed": String(sample === state.sample), tabindex: chunk.start + row === chosen ? "0" : "-1",
      "aria-label": `sample ${sample} on ${gpuName(chunk.gpu)}`, onclick: () => change({ sample }) }, String(sample));
  }));
  const hadFocus = document.activeElement && document.activeElement.closest("#samples");
  show("samples", ...buttons);
  if (hadFocus) buttons[chosen].focus();
}

function moveInSamples(event) {
  const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!move || !event.target.matches("button.sample")) return;
  event.preventDefault();
  const start = firstSample();
  const next = Number(event.target.dataset.sample) + move;
  if (next >= start && next < start + groupNow().batchSize) change({ sample: next });
}

function drawLoss() {
  const group = groupNow();
  const rows = laneRows(group).filter((lane) => lane.rows).map((lane) => {
    const share = group.replicas * lane.rows;
    return [laneName(lane), grouped(lane.rows), `1/${grouped(group.batchSize)}`, `1/${grouped(share)}`,
      [bar(group.batchSize / share, group.sampleWeight, lane.gpu), ` ${times(group.batchSize / share)}`]];
  });
  const equal = group.largest === group.smallest;
  show("loss", make("p", {}, equal ? "All chunks are equal, so the mean of the replicas' means is the mean of the batch." :
    `A loss averaged in each replica weighs a sample of the shortest chunk ${times(group.sampleWeight)} what a mean over ` +
    "the batch gives it. Average the loss over what was gathered, or weigh each replica's mean by its rows."),
  table("What one sample counts", ["GPU", "Rows", "Mean of the batch", "Mean of means", "Ratio"], rows));
}
