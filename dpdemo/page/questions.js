// Predict first, then reveal: questions about the case that is chosen; their answers are hidden until then.

const QUESTIONS = [
  { id: "batches", asks: () => "How many batches has the epoch?", answer: () => epoch.batches,
    why: () => `${grouped(state.data)} samples in batches of ${grouped(state.batch)}: ` +
      (state.dropLast ? "a last batch that is not full is left out." : "the last batch may be short.") },
  { id: "largest", asks: () => "How many rows does the largest chunk of a full batch have?",
    answer: () => epoch.groups[0].largest,
    why: () => `ceil(${epoch.groups[0].batchSize} / ${state.gpus}) = ${epoch.groups[0].largest}.` },
  { id: "idle", asks: () => "How many GPUs are idle in a full batch?", answer: () => epoch.groups[0].idle,
    why: () => `${counted(epoch.groups[0].replicas, "chunk")} for ${counted(state.gpus, "GPU")}.` },
  { id: "shortest", asks: () => "How many rows does the shortest chunk of the last batch have?",
    answer: () => epoch.groups.at(-1).smallest,
    why: () => `The last batch has ${counted(epoch.groups.at(-1).batchSize, "sample")}.` },
  { id: "gpu", asks: () => `On which GPU does sample ${grouped(middle())} run? Give its number.`,
    answer: () => follow(epoch, middle()).gpu,
    why: () => { const stop = follow(epoch, middle());
      return `It is row ${stop.outputRow} of batch ${stop.batch}, whose chunks have ${stop.rows} rows there.`; } },
];

function middle() {
  return Math.floor((epoch.samples - 1) * 0.7);
}

function drawQuestions() {
  const items = QUESTIONS.map((question) => {
    const input = make("input", { type: "number", id: `answer-${question.id}`, min: "0", inputmode: "numeric" });
    const verdict = make("output", { for: `answer-${question.id}` });
    const check = () => {
      const right = question.answer();
      const isRight = input.value.trim() !== "" && Number(input.value) === right;
      verdict.textContent = input.value.trim() === "" ? "Predict a number first." :
        `${isRight ? "Right" : "Not quite"}: ${grouped(right)}. ${question.why()}`;
      verdict.className = isRight ? "right" : "wrong";
    };
    const form = make("form", {}, make("label", { for: input.id }, question.asks()), input,
      make("button", {}, "Reveal"), verdict);
    form.addEventListener("submit", (event) => { event.preventDefault(); check(); });
    return make("li", {}, form);
  });
  show("questions", ...items);
}

function drawPredicting() {
  byId("predicting").checked = state.predicting;
  for (const part of document.querySelectorAll("[data-answers]")) part.hidden = state.predicting;
  byId("hidden-note").hidden = !state.predicting;
}
