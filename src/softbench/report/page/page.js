// The browser of samples. Everything that a model or a data set wrote goes into the page as text, never as markup.
"use strict";
const PAGE = 50;
const element = (id) => document.getElementById(id);
const unseen = /UNSEEN/gu;
const plain = (text) => String(text).replace(unseen, (one) => "\\u" + one.codePointAt(0).toString(16).padStart(4, "0"));
const blocks = new Map();
let block = null, shown = PAGE;

function make(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = plain(text);
  return made;
}

async function open(number) {
  if (!blocks.has(number)) {
    const bytes = Uint8Array.from(atob(element("task-" + number).textContent), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const opened = JSON.parse(await new Response(stream).text());
    opened.prompts = shortest(opened);
    opened.questions = parting(opened.prompts);
    blocks.set(number, opened);
  }
  return blocks.get(number);
}

// Each sample's shortest prompt: the one with no examples before the question.
function shortest(of) {
  return of.samples.map((_, index) => of.jobs.map((one) => one.prompt[index]).filter((one) => one !== null)
    .map((one) => of.texts[one]).reduce((best, one) => best === "" || (one && one.length < best.length) ? one : best, ""));
}

// What is each text's own, between the words that all begin with and those that all end with.
function parting(texts) {
  if (texts.length < 2) return texts;
  const alike = (at) => {
    const most = Math.min(...texts.map((one) => one.length));
    let count = 0;
    while (count < most && texts.every((one) => at(one, count) === at(texts[0], count))) count++;
    while (count && /\S/.test(at(texts[0], count - 1))) count--;
    return count;
  };
  const start = alike((one, place) => one[place]), end = alike((one, place) => one[one.length - 1 - place]);
  return texts.map((one) => one.slice(start, Math.max(start, one.length - end)).trim());
}

// Options of a select; what was chosen stays so, if it is still there.
function fill(name, options, first) {
  const select = element(name), before = select.value;
  select.replaceChildren(...options.map(([value, text]) => {
    const option = make("option", "", text);
    option.value = value;
    return option;
  }));
  const there = (value) => options.some(([one]) => one === value);
  select.value = there(before) ? before : there(first) ? first : options[0]?.[0];
}

const chosen = (name) => element(name).value;
// A name as an option's value, apart from options such as "nothing".
const named = (name) => ["=" + name, name];
const jobOf = (model, method) => block.jobs.find((one) => "=" + one.model === model && "=" + one.method === method) ?? null;
const text = (number) => number === null || number === undefined ? null : block.texts[number];
const nameOf = (of) => of.model + ", " + of.method;

function pair() {
  const model = chosen("model"), other = chosen("other-model");
  const first = jobOf(model, chosen("method"));
  const second = jobOf(other === "same" ? model : other, chosen("other-method"));
  return [first, second === first ? null : second];
}

async function chooseTask() {
  block = await open(chosen("task"));
  const models = [...new Set(block.jobs.map((one) => one.model))].map(named);
  fill("model", models);
  fill("other-model", [["same", "the same"], ["none", "nothing"], ...models]);
  chooseModel();
}

function chooseModel() {
  const model = chosen("model"), other = chosen("other-model");
  const methods = (of) => block.jobs.filter((one) => "=" + one.model === of).map((one) => one.method);
  const others = methods(other.startsWith("=") ? other : model);
  const soft = others.find((one) => one.startsWith("soft_prompt") && !one.includes(":step="));
  fill("method", methods(model).map(named));
  fill("other-method", others.map(named), "=" + soft);
  element("other-method").disabled = other === "none";
  chooseMethod();
}

function chooseMethod() {
  const [first, second] = pair();
  const found = [...new Set(first.status.filter((one) => one !== null))].sort();
  fill("status", [["", "any"], ...found.map((one) => [one, one])]);
  element("status").disabled = !found.length;
  element("agreement").disabled = second === null;
  filter();
}

// right, out of form, or wrong
const outcome = (index, of) => of.right[index] ? "right" : of.lenientRight[index] ? "out of form" : "wrong";

function matches(index, first, second, wanted) {
  if (first.right[index] === null || (second && second.right[index] === null)) return false;
  if (wanted.outcome && outcome(index, first) !== wanted.outcome) return false;
  if (wanted.status && first.status[index] !== wanted.status) return false;
  if (second && wanted.agreement) {
    const [a, b] = [first.right[index], second.right[index]];
    const agrees = { differ: a !== b, first: a && !b, second: b && !a, both: a && b, neither: !a && !b };
    if (!agrees[wanted.agreement]) return false;
  }
  if (!wanted.text) return true;
  const sample = block.samples[index];
  const texts = [sample.id, block.prompts[index], ...sample.answers, ...sample.choices,
    ...[first, second].filter(Boolean).flatMap((one) => [text(one.completion[index]), one.answer[index], one.lenient[index]])];
  return texts.some((one) => one !== null && String(one).toLowerCase().includes(wanted.text));
}

function filter(keep) {
  if (keep !== true) shown = PAGE;
  const [first, second] = pair();
  const wanted = { text: chosen("text").toLowerCase() };
  for (const name of ["outcome", "status", "agreement"]) wanted[name] = chosen(name);
  const found = block.samples.map((_, index) => index).filter((index) => matches(index, first, second, wanted));
  const sides = [first, second].filter(Boolean);
  element("count").textContent = found.length + " of " + block.samples.length + " samples" +
    (block.oneIn > 1 ? ", 1 in " + block.oneIn + " of the " + block.asked + " that were asked" : "");
  element("columns").replaceChildren(...["question, accepted answer", ...sides.map(nameOf)].map((one) => make("span", "", one)));
  element("list").replaceChildren(...found.slice(0, shown).map((index) => row(index, sides)));
  element("more").hidden = found.length <= shown;
}

function row(index, sides) {
  const item = make("li"), details = make("details"), summary = make("summary");
  const head = make("span"), sample = block.samples[index];
  head.append(make("span", "head", block.questions[index] || sample.id), make("span", "said soft", sample.answers.join(" | ")));
  summary.append(head);
  for (const one of sides) summary.append(said(index, one));
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const opened = make("div", "sides");
    for (const one of sides) opened.append(side(index, one));
    details.append(opened);
    // The question stands at a prompt's end.
    for (const one of opened.querySelectorAll(".prompt")) one.scrollTop = one.scrollHeight;
  });
  item.append(details);
  return item;
}

function said(index, of) {
  const cell = make("span"), line = make("span", "said"), came = outcome(index, of);
  const completion = text(of.completion[index]), status = of.status[index];
  line.textContent = completion === null ? likeliest(index, of) : plain(completion.trim() || "(nothing)");
  const words = { right: "right", "out of form": "right, out of form", wrong: "wrong" };
  cell.append(make("span", "who", nameOf(of)), make("span", came.replaceAll(" ", "-"), words[came]));
  if (status !== null && status !== "OK") cell.append(make("span", "soft", " " + status));
  cell.append(line);
  return cell;
}

function options(index, of) {
  return (of.options && of.options[index]) ?? block.samples[index].choices;
}

function likeliest(index, of) {
  const logprobs = of.logprobs[index];
  if (!logprobs.length) return "";
  return plain(options(index, of)[logprobs.indexOf(Math.max(...logprobs))]);
}

function side(index, of) {
  const made = make("div", "side"), sample = block.samples[index];
  made.append(make("h4", "", nameOf(of)));
  const facts = make("dl");
  const fact = (name, value) => {
    if (value === null || value === undefined || value === "") return;
    const line = make("div");
    line.append(make("dt", "", name), make("dd", "", value));
    facts.append(line);
  };
  const ended = { eos: "by itself", stop: "at a stop string", length: "at the token limit" };
  fact("sample", sample.id);
  fact("accepted", sample.answers.join(" | "));
  fact("status", of.status[index]);
  fact("strict answer", of.answer[index]);
  fact("lenient answer", of.lenient[index] === null ? null : of.lenient[index] + (of.lenientRight[index] ? " (right)" : " (wrong)"));
  fact("ended", ended[of.finish[index]]);
  made.append(facts);
  const completion = text(of.completion[index]);
  if (completion !== null) made.append(make("strong", "", "Completion"), scrolled(completion || "(nothing)", completion ? "" : "soft"));
  if (of.logprobs[index].length) made.append(make("strong", "", "Log-likelihood of each option"), likelihoods(index, of));
  made.append(make("strong", "", "Prompt"), scrolled(text(of.prompt[index]), "prompt"));
  return made;
}

function scrolled(value, className) {
  const made = make("pre", className, value);
  made.tabIndex = 0;
  return made;
}

function likelihoods(index, of) {
  const table = make("table"), logprobs = of.logprobs[index];
  const best = Math.max(...logprobs), names = options(index, of), sample = block.samples[index];
  const gold = of.options ? names.indexOf(sample.choices[sample.gold]) : sample.gold;
  names.forEach((option, place) => {
    const line = make("tr");
    line.append(make("td", "number", logprobs[place]?.toFixed(2) ?? "-"), make("td", place === gold ? "right" : "", option));
    line.append(make("td", "", [place === gold ? "right one" : "", logprobs[place] === best ? "likeliest" : ""].filter(Boolean).join(", ")));
    table.append(line);
  });
  return table;
}

// What a mark of a drawing says of itself, it says on hover, too.
for (const mark of document.querySelectorAll(".panel svg :is(path, line, text)[aria-label]")) {
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = mark.getAttribute("aria-label");
  mark.append(title);
}

if (typeof DecompressionStream === "undefined") {
  element("count").textContent = "This browser is too old to unpack the samples; all else on this page works.";
} else if (element("task").options.length) {
  element("filters").hidden = false;
  element("filters").addEventListener("submit", (event) => event.preventDefault());
  element("task").addEventListener("change", chooseTask);
  for (const id of ["model", "other-model"]) element(id).addEventListener("change", chooseModel);
  for (const id of ["method", "other-method"]) element(id).addEventListener("change", chooseMethod);
  for (const id of ["outcome", "status", "agreement"]) element(id).addEventListener("change", filter);
  element("text").addEventListener("input", filter);
  element("more").addEventListener("click", () => { shown += PAGE; filter(true); });
  chooseTask();
}
