// The case that the page shows: read from the controls and the URL's hash, and written back to both.

const LIMITS = { batch: [1, 100000], data: [1, 1000000000], gpus: [1, 128] };
const STEPS = ["batch", "scatter", "replicate", "parallel_apply", "gather"];
const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId("page-data").textContent);
const state = { ...page, batchNumber: 1, step: STEPS.length - 1, sample: 0, predicting: false };
let epoch = null;

function bounded(text, [least, most], otherwise) {
  const number = Number(String(text).trim() || NaN);
  return Number.isInteger(number) ? Math.min(Math.max(number, least), most) : otherwise;
}

function compute() {
  epoch = simulate({ batchSize: state.batch, dataSize: state.data, gpus: state.gpus, dropLast: state.dropLast });
  state.batchNumber = Math.min(Math.max(state.batchNumber, 1), Math.max(epoch.batches, 1));
  state.sample = Math.min(state.sample, state.data - 1);
}

/** The group of the batch that is shown; undefined where drop_last leaves none. */
function groupNow() {
  return epoch.groups.find((group) => state.batchNumber < group.first + group.count);
}

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of ["batch", "data", "gpus"]) state[name] = bounded(given.get(name) ?? "", LIMITS[name], state[name]);
  if (given.has("drop_last")) state.dropLast = given.get("drop_last") === "1";
  state.batchNumber = bounded(given.get("number") ?? "", [1, Number.MAX_SAFE_INTEGER], state.batchNumber);
  state.step = bounded(given.get("step") ?? "", [0, STEPS.length - 1], state.step);
  state.sample = bounded(given.get("sample") ?? "", [0, Number.MAX_SAFE_INTEGER], state.sample);
  if (given.has("predict")) state.predicting = given.get("predict") === "1";
}

function writeHash() {
  const shown = new URLSearchParams({ batch: state.batch, data: state.data, gpus: state.gpus });
  shown.set("drop_last", state.dropLast ? "1" : "0");
  shown.set("number", state.batchNumber);
  shown.set("step", state.step);
  shown.set("sample", state.sample);
  if (state.predicting) shown.set("predict", "1");
  const hash = `#${shown}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}
