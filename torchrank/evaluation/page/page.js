"use strict";
// Draws a page of the table of queries from the data: sorted, filtered, for one measure and pair of runs.
// The state is in the address, e.g. #measure=map&pair=1&sort=0&order=descending&find=q7&page=2.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.getElementById("queries");
  const body = table.tBodies[0] || table.createTBody();
  const heads = [...table.tHead.rows[0].cells];
  const [measureBox, pairBox, findBox, before, after, status] =
    ["measure", "pair", "find", "before", "after", "status"].map((id) => document.getElementById(id));
  const numeric = data.ids.every((id) => /^-?\d{1,15}$/.test(id));
  const names = data.ids.map((id) => id.toLowerCase());
  const state = {};

  const option = (text, value) => Object.assign(document.createElement("option"), { textContent: text, value });
  const subtract = (a, b) => (a === null || b === null ? null : b - a);

  // As Python rounds: a half to the even digit.
  function fixed(value) {
    const scaled = Math.abs(value) * 1e4, whole = Math.floor(scaled);
    const even = scaled < 2 ** 50 && scaled - whole === 0.5;
    return even ? ((whole + (whole % 2)) / 1e4).toFixed(4) : Math.abs(value).toFixed(4);
  }
  function shown(value, signed) {
    if (value === null) return "-";
    return (value < 0 ? "-" : signed ? "+" : "") + fixed(value);
  }

  // The numeric columns of the table: of both runs, and their difference; or of the only run.
  function columns() {
    const values = data.measures[state.measure].values;
    if (!data.pairs.length) return [values[0]];
    const [a, b] = data.pairs[state.pair].map((run) => values[run]);
    return [a, b, a.map((one, n) => subtract(one, b[n]))];
  }

  // The column and order that put the worst queries first.
  function worst() {
    const higher = data.measures[state.measure].higher;
    return { sort: data.pairs.length ? 3 : 1, order: higher ? "ascending" : "descending" };
  }

  function sorted(rows, found) {
    const sign = state.order === "descending" ? -1 : 1;
    const key = state.sort > 0 ? found[state.sort - 1] : numeric ? data.ids.map(Number) : data.ids;
    const compare = (i, j) => {
      const a = key[i], b = key[j];
      if (a === b) return i - j;
      if (a === null || b === null) return a === null ? 1 : -1;
      return a < b ? -sign : sign;
    };
    return rows.sort(compare);
  }

  function draw() {
    const found = columns();
    const wanted = state.find.toLowerCase();
    const rows = sorted([...names.keys()].filter((n) => names[n].includes(wanted)), found);
    const pages = Math.max(1, Math.ceil(rows.length / data.page));
    state.page = Math.min(Math.max(1, state.page), pages);
    const start = (state.page - 1) * data.page;
    const part = rows.slice(start, start + data.page);
    body.replaceChildren(...part.map((n) => {
      const row = document.createElement("tr"), name = document.createElement("th");
      name.scope = "row";
      name.textContent = data.ids[n];
      row.append(name, ...found.map((column, at) => {
        const cell = document.createElement("td");
        cell.className = "n";
        cell.textContent = shown(column[n], at === 2);
        return cell;
      }));
      return row;
    }));
    const runs = data.pairs.length ? data.pairs[state.pair].map((run) => data.runs[run]) : data.runs;
    ["Query", ...runs, "b - a"].slice(0, heads.length).forEach((text, at) => {
      heads[at].firstChild.textContent = text;
      heads[at].setAttribute("aria-sort", at === state.sort ? state.order : "none");
    });
    measureBox.value = state.measure;
    pairBox.value = state.pair;
    if (findBox.value !== state.find) findBox.value = state.find;
    before.disabled = state.page === 1;
    after.disabled = state.page === pages;
    status.textContent = rows.length ? `${start + 1} to ${start + part.length} of ${rows.length} queries` : "no query";
    table.dataset.rows = rows.length;
  }

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const among = (value, count) => (value >= 0 && value < count ? Math.floor(value) : 0);
    state.measure = Math.max(0, data.measures.findIndex((one) => one.label === given.get("measure")));
    state.pair = among(Number(given.get("pair")), data.pairs.length);
    Object.assign(state, worst());
    if (given.has("sort")) state.sort = among(Number(given.get("sort")), heads.length);
    if (["ascending", "descending"].includes(given.get("order"))) state.order = given.get("order");
    state.find = given.get("find") || "";
    state.page = Number(given.get("page")) || 1;
    draw();
  }

  function change(changes) {
    Object.assign(state, { page: 1 }, changes);
    draw();
    const { measure, ...others } = state;
    const address = new URLSearchParams({ measure: data.measures[measure].label, ...others });
    try { history.replaceState(null, "", `#${address}`); } catch { /* a page in a frame may have no address */ }
  }

  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      const again = state.sort === at && state.order === "ascending";
      change({ sort: at, order: again ? "descending" : "ascending" });
    });
    head.replaceChildren(button);
  });
  measureBox.append(...data.measures.map((one, at) => option(one.label, at)));
  pairBox.append(...data.pairs.map(([a, b], at) => option(`${data.runs[b]} - ${data.runs[a]}`, at)));
  pairBox.parentElement.hidden = !data.pairs.length;
  measureBox.addEventListener("change", () => {
    state.measure = Number(measureBox.value);
    change(state.sort === heads.length - 1 ? worst() : {});
  });
  pairBox.addEventListener("change", () => change({ pair: Number(pairBox.value) }));
  findBox.addEventListener("input", () => change({ find: findBox.value }));
  before.addEventListener("click", () => change({ page: state.page - 1 }));
  after.addEventListener("click", () => change({ page: state.page + 1 }));
  for (const one of document.querySelectorAll(".controls")) one.hidden = false;
  addEventListener("hashchange", read);
  read();
})();
