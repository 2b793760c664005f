// From a change to the page: the controls, the hash, and the order in which all is drawn.

let drawnFor = "";

function change(changes) {
  const before = state.sample;
  Object.assign(state, changes);
  compute();
  if ("batchNumber" in changes && groupNow()) state.sample = Math.min(firstSample(), state.data - 1);
  if (state.sample !== before && "sample" in changes) {
    const stop = follow(epoch, state.sample);
    if (stop) state.batchNumber = stop.batch;
  }
  draw();
  writeHash();
}

function draw() {
  drawControls();
  drawPredicting();
  const none = !epoch.groups.length;
  byId("no-batch").hidden = !none;
  byId("content").hidden = none;
  if (none) return;
  for (const part of [drawEpoch, drawSteps, drawSample, drawLoss, drawMap]) part();
  const subject = JSON.stringify([state.batch, state.data, state.gpus, state.dropLast, state.weights]);
  if (drawnFor !== subject) drawQuestions();
  drawnFor = subject;
}

function drawControls() {
  for (const name of ["batch", "data", "gpus"]) {
    for (const id of [name, `${name}-range`]) {
      if (byId(id) !== document.activeElement || id.endsWith("range")) byId(id).value = state[name];
    }
  }
  byId("drop-last").checked = state.dropLast;
  const field = byId("weights");
  if (field !== document.activeElement) field.value = state.weights;
  const wrong = state.weights ? readWeights(state.weights, state.gpus) : null;
  const isWrong = typeof wrong === "string";
  field.setAttribute("aria-invalid", String(isWrong));
  show("weights-says", isWrong ? `${wrong}; until then torch's own rule is shown.` : "");
  show("command", commandNow());
}

/** The same case for a terminal. */
function commandNow() {
  const weights = weightsNow() ? ` --weights ${state.weights.replaceAll(" ", "")}` : "";
  return `dpdemo simulate --gpus ${state.gpus} --batch-size ${state.batch} --data-size ${state.data}` +
    `${state.dropLast ? " --drop-last" : ""}${weights}`;
}

function listen() {
  for (const name of ["batch", "data", "gpus"]) {
    for (const id of [name, `${name}-range`]) {
      byId(id).addEventListener("input", (event) => change({ [name]: bounded(event.target.value, LIMITS[name], state[name]) }));
    }
    byId(name).addEventListener("change", (event) => { event.target.value = state[name]; });
  }
  byId("drop-last").addEventListener("change", (event) => change({ dropLast: event.target.checked }));
  byId("weights").addEventListener("input", (event) => change({ weights: event.target.value.slice(0, 2000) }));
  byId("sample").addEventListener("input", (event) =>
    change({ sample: bounded(event.target.value, [0, state.data - 1], state.sample) }));
  byId("predicting").addEventListener("change", (event) => change({ predicting: event.target.checked }));
  for (const button of byId("stepper").querySelectorAll("button[data-step]")) {
    button.addEventListener("click", () => change({ step: Number(button.dataset.step) }));
  }
  byId("previous").addEventListener("click", () => change({ step: Math.max(state.step - 1, 0) }));
  byId("next").addEventListener("click", () => change({ step: Math.min(state.step + 1, STEPS.length - 1) }));
  byId("stepper").addEventListener("keydown", moveInSteps);
  byId("samples").addEventListener("keydown", moveInSamples);
  byId("map").addEventListener("click", pickInMap);
  byId("map").addEventListener("keydown", moveInMap);
  window.addEventListener("hashchange", () => { readHash(); change({}); });
}

function moveInSteps(event) {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!move) return;
  event.preventDefault();
  const step = Math.min(Math.max(state.step + move, 0), STEPS.length - 1);
  change({ step });
  byId("stepper").querySelector(`[data-step="${step}"]`).focus();
}

/** Runs the golden cases of `dpdemo simulate`: a page that computes otherwise must say so. */
function checkItself() {
  const wrong = disagreements(page.cases);
  const text = wrong.length ?
    `This page is wrong: it disagrees with dpdemo simulate in ${wrong.length} of ${page.cases.length} cases, first ${JSON.stringify(wrong[0][0])}.` :
    `Checked: this page agrees with dpdemo simulate in ${page.cases.length} golden cases.`;
  byId("self-check").className = wrong.length ? "wrong" : "";
  show("self-check", text);
}

function describeModel() {
  const { name, inputBytes, outputBytes, moduleBytes, source } = page.model;
  show("model-says", `Bytes are those of ${name}: ${size(inputBytes)} in and ${size(outputBytes)} out for each sample, ` +
    `${size(moduleBytes)} of parameters and buffers for each replica (${source}).`);
}

/** What `dpdemo memory` predicted for one case: it needs the model itself, so no slider moves it. */
function describeMemory() {
  if (!page.memory) {
    byId("memory-part").remove();
    return;
  }
  const { model, batch, gpus } = page.memory;
  const fullest = Math.max(...gpus.map((gpu) => gpu.peak));
  show("memory-says", `Predicted by dpdemo memory for ${model}, a batch of ${grouped(batch)} over ${counted(gpus.length, "GPU")}. ` +
    "The sliders do not move it.");
  show("memory", table("Each GPU at its fullest moment", ["GPU", "Rows", "Peak", "When", "For what"], gpus.map((gpu, place) =>
    [gpu.device, grouped(gpu.rows), [bar(gpu.peak, fullest, place), ` ${size(gpu.peak)}`], gpu.phase,
      gpu.parts.filter(([, bytes]) => bytes).map(([part, bytes]) => `${part} ${size(bytes)}`).join(", ")])));
  describePhases(gpus);
}

/** The most that each GPU holds in each phase of the step, a line for each phase. */
function describePhases(gpus) {
  const most = Math.max(1, ...gpus.flatMap((gpu) => gpu.phases.map(([, bytes]) => bytes)));
  const names = [...new Set(gpus.flatMap((gpu) => gpu.phases.map(([phase]) => phase)))];
  if (!names.length) {
    byId("phases").remove();
    return;
  }
  const cell = (bytes, place) => (bytes == null ? "–" : [bar(bytes, most, place), ` ${size(bytes)}`]);
  show("phases", table("Each GPU at its most in each phase, without what CUDA's libraries take", ["Phase", ...gpus.map((gpu) => gpu.device)],
    names.map((name) => [name, ...gpus.map((gpu, place) => cell(new Map(gpu.phases).get(name), place))])));
}

readHash();
listen();
describeModel();
describeMemory();
change({});
checkItself();
