"use strict";
const root = document.documentElement;
const countError = () => { root.dataset.errors = Number(root.dataset.errors) + 1; };
addEventListener("error", countError);
addEventListener("unhandledrejection", countError);

const data = JSON.parse(document.getElementById("data").textContent);
const model = data.model, ids = data.ids, T = ids.length, L = model.n_layer, H = model.n_head;
const steps = data.cache.steps;
const chosen = { token: data.prompt_tokens - 1, layer: 0, head: 0, step: 0 };

// Text

const byId = (id) => document.getElementById(id);
const whole = (number) => number.toLocaleString("en");
const plural = (number, word) => `${whole(number)} ${word}${number === 1 ? "" : "s"}`;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// What has no shape of its own is named, so that it can be seen and cannot disturb the page: bytes that are not UTF-8
// come as a list of numbers.
function shown(id) {
  const token = data.tokens[id];
  if (token === null) return `#${id}`;
  if (Array.isArray(token))
    return token.map((byte) => byte >= 32 && byte < 127 ? String.fromCharCode(byte)
                                                        : `\\x${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
  return token.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) =>
    character === "\n" ? "\\n" : character === "\t" ? "\\t"
    : `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
}
const quoted = (id) => `\u201c${shown(id)}\u201d`;
const tokenElement = (id) => element("span", { className: "token" }, shown(id));

const isGenerated = (t) => t >= data.prompt_tokens;
// The first token has no surprise; a probability of 0 has null as well.
const bitsOf = (t) => t === 0 ? null : data.log_probabilities[t] === null ? Infinity : -data.log_probabilities[t] / Math.LN2;
// A probability that would be rounded to nothing is told as less than the least that is shown.
const percent = (share, digits) => digits === undefined && share < 0.00005 ? "below 0.01\u00a0%"
  : `${(100 * share).toFixed(digits ?? (share < 0.01 ? 2 : 1))}\u00a0%`;
const weightText = (share) => percent(share, 1);  // as they are stored
const bitsText = (bits, digits) => bits === null ? "none" : bits === Infinity ? "infinite" : bits.toFixed(digits);
const probabilityText = (t) => t === 0 ? "none" : percent(Math.exp(data.log_probabilities[t] ?? -Infinity));
const placeText = (t) => `${quoted(ids[t])} at position ${t}`;

// Choosing

// One stop of the Tab key for many items: arrow keys go on among them, and what has the focus is chosen.
function choosable(box, columns, choose) {
  const items = () => [...box.querySelectorAll("[role=option], [role=radio]")];
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const all = items(), at = all.indexOf(document.activeElement);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -at,
                   End: all.length - 1 - at }[event.key];
    if (step === undefined || at < 0) return;
    event.preventDefault();
    if (all[at + step]) all[at + step].focus();
  });
  box.addEventListener("focusin", (event) => {
    const at = items().indexOf(event.target);
    if (at >= 0) choose(at);
  });
  box.addEventListener("click", (event) => event.target.closest("[role=option], [role=radio]")?.focus());
}

function mark(box, attribute, at) {
  [...box.querySelectorAll("[role=option], [role=radio]")].forEach((item, i) => {
    item.setAttribute(attribute, String(i === at));
    item.tabIndex = i === at ? 0 : -1;
  });
}

let addressTimer = null;
function select(changes) {
  stopPlaying();
  Object.assign(chosen, changes);
  // Browsers allow only so many changes of the address in a while.
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => history.replaceState(null, "", "#" + new URLSearchParams(chosen)), 300);
  render();
}

// The address can say what is chosen, such as #token=3&layer=2&head=1&step=4.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const counts = { token: T, layer: L, head: H, step: steps.length };
  for (const [name, count] of Object.entries(counts)) {
    const number = Number(given.get(name) ?? NaN);
    if (Number.isInteger(number) && number >= 0 && number < count) chosen[name] = number;
  }
}

// Surprise

const finiteBits = ids.map((_, t) => bitsOf(t)).filter((bits) => bits !== null && bits !== Infinity);
const mostBits = Math.max(1, ...finiteBits);

function tokenOptions(box, label) {
  box.append(...ids.map((id, t) => {
    const item = element("span", { className: isGenerated(t) ? "generated" : "" }, shown(id));
    item.setAttribute("role", "option");
    item.setAttribute("aria-label", label(t));
    return item;
  }));
}

function buildSurprise() {
  tokenOptions(byId("surprise"), (t) =>
    `${shown(ids[t])}, position ${t}, ${bitsText(bitsOf(t), 2)} bits${isGenerated(t) ? ", generated" : ""}`);
  [...byId("surprise").children].forEach((item, t) => {
    item.style.setProperty("--share", Math.min(1, (bitsOf(t) ?? 0) / mostBits));
    item.title = `${bitsText(bitsOf(t), 2)} bits`;
  });
  choosable(byId("surprise"), 1, (token) => select({ token }));
  byId("most-bits").textContent = `${mostBits.toFixed(1)} bits`;
  byId("token-table").tBodies[0].append(...ids.map((id, t) => element("tr", {},
    element("td", {}, String(t)), element("td", {}, tokenElement(id)), element("td", {}, String(id)),
    element("td", {}, bitsText(bitsOf(t), 4)), element("td", {}, probabilityText(t)),
    element("td", {}, isGenerated(t) ? "generated" : "given"))));
}

function renderSurprise() {
  const t = chosen.token;
  mark(byId("surprise"), "aria-selected", t);
  byId("chosen").textContent = `Chosen: ${placeText(t)}, id ${ids[t]}, ` + (t === 0 ? "with nothing before it"
    : `${bitsText(bitsOf(t), 2)} bits: its probability was ${probabilityText(t)}`) + (isGenerated(t) ? "; generated." : ".");
}

// Attention

// Of a lower triangle, row by row, in thousandths.
const weight = (layer, head, row, column) => data.attention[layer][head][row * (row + 1) / 2 + column] / 1000;
const rowOf = (layer, head, row) => Array.from({ length: row + 1 }, (_, column) => weight(layer, head, row, column));

// On average over the rows for which these are four different things.
function headSummary(layer, head) {
  if (T < 3) return "The text is too short to say what this head does.";
  const sums = [0, 0, 0];
  for (let row = 2; row < T; ++row)
    [0, row - 1, row].forEach((column, i) => { sums[i] += weight(layer, head, row, column); });
  const [first, before, itself] = sums.map((sum) => sum / (T - 2));
  return `On average a token gives ${weightText(first)} to the first token, ${weightText(before)} to the one before it, ` +
    `${weightText(itself)} to itself and ${weightText(Math.max(0, 1 - first - before - itself))} to others.`;
}

function heatColour() {
  return getComputedStyle(root).getPropertyValue("--heat").trim().split(/\s+/).map(Number);
}

function drawHead(canvas, layer, head, size) {
  canvas.width = canvas.height = T * size;
  const context = canvas.getContext("2d"), [red, green, blue] = heatColour();
  for (let row = 0; row < T; ++row)
    for (let column = 0; column <= row; ++column) {
      const share = Math.sqrt(weight(layer, head, row, column));
      if (share === 0) continue;
      context.fillStyle = `rgba(${red}, ${green}, ${blue}, ${share})`;
      context.fillRect(column * size, row * size, size, size);
    }
  return context;
}

function drawAllHeads() {
  for (const canvas of byId("heads").querySelectorAll("canvas"))
    drawHead(canvas, Number(canvas.dataset.layer), Number(canvas.dataset.head), 1);
}

function buildAttention() {
  const heads = byId("heads");
  heads.style.gridTemplateColumns = `1.2rem repeat(${L}, clamp(24px, (100vw - 4rem) / ${L}, 56px))`;
  const name = (text) => element("span", { className: "name" }, text);
  heads.append(name(""), ...Array.from({ length: L }, (_, layer) => name(String(layer))));
  for (let head = 0; head < H; ++head) {
    heads.append(name(String(head)));
    for (let layer = 0; layer < L; ++layer) {
      const canvas = element("canvas");
      Object.assign(canvas.dataset, { layer, head });
      const item = element("span", { title: `Layer ${layer}, head ${head}` }, canvas);
      item.setAttribute("role", "radio");
      item.setAttribute("aria-label", `Layer ${layer}, head ${head}. ${headSummary(layer, head)}`);
      heads.append(item);
    }
  }
  drawAllHeads();
  choosable(heads, L, (at) => select({ layer: at % L, head: Math.floor(at / L) }));

  const attends = byId("attends");
  tokenOptions(attends, (t) => shown(ids[t]));
  choosable(attends, 1, (token) => select({ token }));
  attends.addEventListener("pointerover", (event) => {
    const at = [...attends.children].indexOf(event.target.closest("[role=option]"));
    if (at >= 0) renderAttends(at);
  });
  attends.addEventListener("pointerleave", () => renderAttends(chosen.token));

  const large = byId("large");
  const cellAt = (event) => {
    const box = large.getBoundingClientRect();
    const cell = (offset, length) => Math.min(T - 1, Math.max(0, Math.floor(offset / length * T)));
    return [cell(event.clientY - box.top, box.height), cell(event.clientX - box.left, box.width)];
  };
  large.addEventListener("pointermove", (event) => {
    const [row, column] = cellAt(event);
    renderAttends(row);
    byId("cell").textContent = column > row ? `${placeText(row)} comes before ${placeText(column)}: nothing to attend to.`
      : `${placeText(row)} gives ${weightText(weight(chosen.layer, chosen.head, row, column))} to ${placeText(column)}.`;
  });
  large.addEventListener("pointerleave", () => renderAttends(chosen.token));
  large.addEventListener("click", (event) => select({ token: cellAt(event)[0] }));
}

function renderLarge(row) {
  const size = Math.min(48, Math.max(2, Math.floor(480 / T)));
  const context = drawHead(byId("large"), chosen.layer, chosen.head, size);
  context.strokeStyle = getComputedStyle(root).getPropertyValue("--front");
  context.lineWidth = Math.max(1, Math.min(3, size / 4));
  const edge = context.lineWidth / 2;
  context.strokeRect(edge, row * size + edge, (row + 1) * size - 2 * edge, size - 2 * edge);
}

// From where the token at `row` attends, in the chosen head: the chosen token, or what is pointed at.
function renderAttends(row) {
  const weights = rowOf(chosen.layer, chosen.head, row);
  renderLarge(row);
  byId("cell").textContent = `The outlined row is that of ${placeText(row)}. Point at a place to read its weight.`;
  byId("attends-from").textContent = `${placeText(row)} attends to:`;
  const order = weights.map((_, column) => column).sort((a, b) => weights[b] - weights[a]);
  const top = order.slice(0, 6).filter((column) => weights[column] > 0);
  const rest = order.slice(top.length).reduce((sum, column) => sum + weights[column], 0);
  [...byId("attends").children].forEach((item, t) => {
    item.style.setProperty("--share", Math.sqrt(weights[t] ?? 0));
    item.classList.toggle("later", t > row);
    item.setAttribute("aria-label", `${shown(ids[t])}, position ${t}` +
      (t === row ? `, attends most to ${top.map((column) => `${placeText(column)}, ${weightText(weights[column])}`).join("; ")}` :
       t < row ? `, gets ${weightText(weights[t])}` : ", comes later"));
  });
  byId("attends-list").replaceChildren(...top.map((column) => element("li", {},
    element("span", {}, weightText(weights[column])),
    element("span", {}, tokenElement(ids[column]), ` position ${column}`))),
    ...(order.length > top.length ? [element("li", {}, element("span", {}, weightText(rest)),
      element("span", {}, `to ${order.length - top.length} others`))] : []));
}

function renderAttention() {
  mark(byId("heads"), "aria-checked", chosen.head * L + chosen.layer);
  mark(byId("attends"), "aria-selected", chosen.token);
  byId("head-title").textContent = `Layer ${chosen.layer}, head ${chosen.head}`;
  byId("head-summary").textContent = headSummary(chosen.layer, chosen.head);
  renderAttends(chosen.token);
}

// Logit lens

const placeName = (place) => place === 0 ? "embedding" : `layer ${place - 1}`;

function renderLens() {
  const t = chosen.token, next = t + 1 < T ? ids[t + 1] : null;
  const ranks = data.lens.map((place) => place[t].next);
  let text = `After ${placeText(t)}, `;
  if (next === null) {
    text += "nothing follows in this text, so nothing has a rank.";
  } else {
    text += `${quoted(next)} follows. `;
    // From where on it stays the likeliest.
    const settled = ranks.findLastIndex(([rank]) => rank !== 1) + 1;
    text += settled === ranks.length ? `After the last layer it has rank ${whole(ranks[settled - 1][0])} of ${whole(model.vocab_size)}.`
      : `It is the likeliest from ${placeName(settled)} on.`;
  }
  byId("lens-summary").textContent = text;
  byId("lens-table").tBodies[0].replaceChildren(...data.lens.map((place, at) => {
    const guesses = place[t].top.map(([id, share]) => element("span", { className: id === next ? "guess right" : "guess" },
      tokenElement(id), " ", element("small", {}, percent(share / 10000))));
    return element("tr", {}, element("th", { scope: "row" }, placeName(at)),
      element("td", {}, ranks[at] === null ? "none" : whole(ranks[at][0])), element("td", {}, ...guesses));
  }));
}

// Cache

const pagePositions = data.cache.page_positions, positionBytes = data.cache.position_bytes;
const positionsAfter = (step) => step.first + step.tokens;

function buildCache() {
  byId("step").max = steps.length - 1;
  byId("step").addEventListener("input", (event) => select({ step: Number(event.target.value) }));
  byId("back").addEventListener("click", () => select({ step: Math.max(0, chosen.step - 1) }));
  byId("forth").addEventListener("click", () => select({ step: Math.min(steps.length - 1, chosen.step + 1) }));
  byId("play").addEventListener("click", () => (playing ? stopPlaying() : play()));
}

let playing = null;
function play() {
  if (chosen.step === steps.length - 1) chosen.step = 0;
  byId("play").textContent = "Pause";
  byId("cache-text").setAttribute("aria-live", "off");
  playing = setInterval(() => {
    ++chosen.step;
    renderCache();
    if (chosen.step === steps.length - 1) stopPlaying();
  }, 400);
  renderCache();
}
function stopPlaying() {
  clearInterval(playing);
  playing = null;
  byId("play").textContent = "Play";
  byId("cache-text").setAttribute("aria-live", "polite");
}

function renderCache() {
  const step = steps[chosen.step], length = positionsAfter(step), pages = Math.ceil(length / pagePositions);
  const read = length * positionBytes, kept = step.layer_bytes;
  const what = chosen.step === 0 ? `The text that was given, ${plural(step.tokens, "token")}, is run at once`
    : `${placeText(step.first)} is run`;
  const outcome = length < T ? `; what comes of it is ${quoted(ids[length])}.` : ".";
  const label = `Step ${chosen.step + 1} of ${steps.length}`;
  byId("step").value = chosen.step;
  byId("step").setAttribute("aria-valuetext", label);
  byId("back").disabled = chosen.step === 0;
  byId("forth").disabled = chosen.step === steps.length - 1;
  byId("play").disabled = steps.length === 1;
  byId("cache-text").textContent = `${label}. ${what}${outcome} In each layer it writes ${plural(step.tokens, "position")} ` +
    `and reads ${plural(length, "position")}: ${whole(read)} bytes of keys and values, ${whole(L * read)} in all layers. ` +
    `The cache has ${plural(pages, "page")} in each layer, ${plural(pages * pagePositions - length, "position")} free.`;
  byId("pages").replaceChildren(...Array.from({ length: pages }, (_, page) => {
    const cells = Array.from({ length: pagePositions }, (_, i) => {
      const t = page * pagePositions + i;
      const state = t >= length ? "" : (isGenerated(t) ? " made" : " given") + (t >= step.first ? " now" : "");
      return element("span", { className: "position" + state, title: t < length ? placeText(t) : "" });
    });
    return element("div", { className: "page" }, element("p", {},
      `Page ${page}: positions ${page * pagePositions} to ${(page + 1) * pagePositions - 1}`), ...cells);
  }));
  const row = (name, factor) => element("tr", {}, element("th", { scope: "row" }, name),
    ...[factor * length, factor * read, factor * kept].map((number) => element("td", {}, whole(number))));
  byId("cache-table").tBodies[0].replaceChildren(row("each layer", 1), row(`all ${plural(L, "layer")}`, L));
}

// The walk

const letters = [
  ["T", 1, "rows of the step: one token"], ["N", model.n_positions, "n_positions, the context"],
  ["C", model.n_embd, "n_embd, the width of the residual stream"], ["H", H, "n_head"], ["D", model.n_embd / H, "C / H"],
  ["n_inner", model.n_inner, "the width inside the MLP"], ["V", model.vocab_size, "vocab_size"], ["L", L, "n_layer"],
];
// By TransformerLens's name without the layer: a title, the shape in letters, and what is done.
const walkSteps = {
  "hook_embed": ["Row of wte", "[T, C]", "The token's own embedding."],
  "hook_pos_embed": ["Row of wpe", "[T, C]", "The embedding of its position."],
  "hook_resid_pre": ["The residual stream", "[T, C]", "What enters the block; before layer 0, the sum of the two embeddings."],
  "ln1.hook_normalized": ["ln_1", "[T, C]", "LayerNorm: mean 0 and variance 1, then times its weight, plus its bias."],
  "attn.hook_q": ["Query", "[T, D] per head", "A third of what c_attn makes of ln_1, x * weight + bias, [T, C] to [T, 3C]; this head's columns."],
  "attn.hook_k": ["Key", "[T, D] per head", "Another third. It goes into the cache."],
  "attn.hook_v": ["Value", "[T, D] per head", "The last third. It goes into the cache as well."],
  "attn.hook_attn_scores": ["Scores", "[1, position + 1] per head", "The query times each key so far, divided by the root of D."],
  "attn.hook_pattern": ["Softmax", "[1, position + 1] per head", "The scores as weights whose sum is 1: the row in the picture above."],
  "attn.hook_z": ["Mixed values", "[T, D] per head", "The values so far, weighted and summed."],
  "attn.hook_result": ["The head's result", "[T, C] per head", "The mixed values times this head's rows of c_proj."],
  "hook_attn_out": ["Attention's output", "[T, C]", "All heads' results and c_proj's bias, summed."],
  "hook_resid_mid": ["Added to the residual stream", "[T, C]", "The stream between the two sublayers."],
  "ln2.hook_normalized": ["ln_2", "[T, C]", "LayerNorm again."],
  "mlp.hook_pre": ["c_fc", "[T, n_inner]", "x * weight + bias."],
  "mlp.hook_post": [`The activation, ${model.activation}`, "[T, n_inner]", "Number by number."],
  "hook_mlp_out": ["c_proj", "[T, C]", "x * weight + bias: the MLP's output."],
  "hook_resid_post": ["Added to the residual stream", "[T, C]", "What leaves the block, and enters the next."],
  "ln_final.hook_normalized": ["ln_f", "[T, C]", "The last LayerNorm."],
  "logits": ["Logits", "[T, V]", "ln_f times the unembedding: a number for each token of the vocabulary."],
};

function buildWalk() {
  byId("walk-text").textContent = `The way of the last token, ${placeText(T - 1)}, with the first numbers of everything ` +
    `that is computed on it.`;
  byId("letters").tBodies[0].append(...letters.map(([letter, value, meaning]) => element("tr", {},
    element("th", { scope: "row" }, letter), element("td", {}, whole(value)), element("td", {}, meaning))));
  for (const [name, count] of [["layer", L], ["head", H]]) {
    const menu = byId(`walk-${name}`);
    menu.append(...Array.from({ length: count }, (_, i) => element("option", { value: i }, String(i))));
    menu.addEventListener("change", () => select({ [name]: Number(menu.value) }));
  }
}

function walkItem(one) {
  const [title, shape, text] = walkSteps[one.point.replace(/^blocks\.\d+\./, "")];
  const count = one.shape[1], more = count - one.first.length;
  const where = one.layer === null ? "" : ` in layer ${one.layer}` + (one.head === null ? "" : `, head ${one.head}`);
  const numbers = one.first.map((number) => number === null ? "not finite" : String(number)).join(", ");
  return element("li", { className: one.layer === null ? "" : "layer" },
    element("h3", {}, title + where),
    element("p", {}, `${text} ${shape}, here [${one.shape.join(", ")}]. `, element("code", {}, one.point)),
    element("p", { className: "numbers" }, element("code", {}, numbers), more > 0 ? ` and ${whole(more)} more` : ""));
}

function renderWalk() {
  byId("walk-layer").value = chosen.layer;
  byId("walk-head").value = chosen.head;
  const seen = data.walk.filter((one) => (one.layer ?? chosen.layer) === chosen.layer && (one.head ?? chosen.head) === chosen.head);
  const plain = (title, text) => element("li", {}, element("h3", {}, title), element("p", {}, text));
  byId("walk-steps").replaceChildren(
    plain("The id and its position", `${quoted(ids[T - 1])} has id ${ids[T - 1]}; its position is ${T - 1}.`),
    ...seen.map(walkItem),
    plain("The largest", `The largest of the ${whole(model.vocab_size)} logits is that of id ${data.next}, ` +
      `${quoted(data.next)}: the token that would come next.`));
}

function render() {
  renderSurprise();
  renderAttention();
  renderLens();
  renderCache();
  renderWalk();
}

document.title = `${ids.slice(0, 12).map(shown).join("").trim()} - driftless explain`;
const mean = finiteBits.length > 0 ? ` ${(finiteBits.reduce((a, b) => a + b) / finiteBits.length).toFixed(2)} bits of surprise per token.` : "";
const generated = T === data.prompt_tokens ? "none generated" : `${whole(T - data.prompt_tokens)} generated, each the likeliest`;
byId("summary").textContent = `${model.name}: ${plural(L, "layer")} of ${plural(H, "head")}, weights as ${model.weights}, ` +
  `cache as ${model.cache}. ${plural(data.prompt_tokens, "token")} given, ${generated}.${mean} Written by ${data.version}.`;
readAddress();
buildSurprise();
buildAttention();
buildCache();
buildWalk();
render();
addEventListener("hashchange", () => { readAddress(); render(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawAllHeads(); render(); });
