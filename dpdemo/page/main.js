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
  for (const part of [drawEpoch, drawSteps, drawSample, drawLoss]) part();
  const subject = JSON.stringify([state.batch, state.data, state.gpus, state.dropLast]);
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
  show("command", commandNow());
}

/** The same case for a terminal. */
function commandNow() {
  return `dpdemo simulate --gpus ${state.gpus} --batch-size ${state.batch} --data-size ${state.data}` +
    `${state.dropLast ? " --drop-last" : ""}`;
}

function listen() {
  for (const name of ["batch", "data", "gpus"]) {
    for (const id of [name, `${name}-range`]) {
      byId(id).addEventListener("input", (event) => change({ [name]: bounded(event.target.value, LIMITS[name], state[name]) }));
    }
    byId(name).addEventListener("change", (event) => { event.target.value = state[name]; });
  }
  byId("drop-last").addEventListener("change", (event) => change({ dropLast: event.target.checked }));
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

readHash();
listen();
change({});
