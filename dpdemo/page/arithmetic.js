// How an epoch is split: the same arithmetic as `dpdemo simulate`, with which tests/page compares it.
// All numbers are whole and stay under 2^53, so each step is exact.

/** torch.chunk's rule: chunks of ceil(batch / gpus) rows, as many as that takes; the last takes the rest. */
function splitEvenly(batch, gpus) {
  const rows = Math.ceil(batch / gpus);
  const full = Math.floor(batch / rows);
  const rest = batch - full * rows;
  const runs = [{ first: 0, count: full, rows }];
  if (rest) runs.push({ first: full, count: 1, rows: rest });
  return runs;
}

/** One kind of batch: `count` neighbouring batches, from number `first` on, that are split the same way. */
function groupOf(first, count, batchSize, gpus) {
  const runs = splitEvenly(batchSize, gpus);
  const sizes = runs.map((run) => run.rows);
  const replicas = runs.reduce((sum, run) => sum + run.count, 0);
  const [largest, smallest] = [Math.max(...sizes), Math.min(...sizes)];
  return {
    first, count, batchSize, runs, replicas, largest, smallest, gpus,
    idle: gpus - replicas,
    balance: batchSize / (gpus * largest),
    sampleWeight: batchSize / (replicas * smallest),
  };
}

/** The epoch of a case: its batches in groups, and their sums. */
function simulate({ batchSize, dataSize, gpus, dropLast }) {
  const full = Math.floor(dataSize / batchSize);
  const rest = dataSize % batchSize;
  const groups = [];
  if (full) groups.push(groupOf(1, full, batchSize, gpus));
  if (rest && !dropLast) groups.push(groupOf(full + 1, 1, rest, gpus));
  const sum = (of) => groups.reduce((total, group) => total + group.count * of(group), 0);
  const capacity = sum((group) => group.gpus * group.largest);
  const samples = sum((group) => group.batchSize);
  return {
    groups, samples,
    batches: sum(() => 1),
    utilization: capacity ? samples / capacity : 1,
    sampleWeight: groups.length ? Math.max(...groups.map((group) => group.sampleWeight)) : null,
  };
}

/** Where a sample goes; null if it is left out. */
function follow(epoch, sample) {
  let start = 0;
  for (const group of epoch.groups) {
    const stop = start + group.count * group.batchSize;
    if (sample < stop) {
      const outputRow = (sample - start) % group.batchSize;
      return { group, batch: group.first + Math.floor((sample - start) / group.batchSize), outputRow,
        ...placeOf(group, outputRow) };
    }
    start = stop;
  }
  return null;
}

function placeOf(group, batchRow) {
  let rest = batchRow;
  for (const run of group.runs) {
    if (rest < run.rows * run.count) {
      return { gpu: run.first + Math.floor(rest / run.rows), row: rest % run.rows, rows: run.rows };
    }
    rest -= run.rows * run.count;
  }
  throw new Error(`row ${batchRow} is in no chunk`);
}

/** Each chunk by itself: its GPU, its rows, and the row of the batch that it starts with. */
function chunksOf(group) {
  const chunks = [];
  let start = 0;
  for (const run of group.runs) {
    for (let index = 0; index < run.count; index += 1) {
      chunks.push({ gpu: run.first + index, rows: run.rows, start });
      start += run.rows;
    }
  }
  return chunks;
}
