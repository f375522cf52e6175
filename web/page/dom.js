// dom.js - elements, tables that are changed in place, and numbers for people.
//
// Whatever comes from a sandbox is text, never markup.

// el("a.button", {href: "#x", onclick: f}, "text", child)
export function el(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Values from 0 to `top`, as a line over time.
export function chart(label, values, top, text) {
  const width = 300, height = 60;
  const points = values.map((v, i) =>
    `${(values.length > 1 ? (i / (values.length - 1)) * width : width).toFixed(1)},` +
    `${(height - Math.min(v / (top || 1), 1) * height).toFixed(1)}`);
  const picture = svg("svg", { viewBox: `0 -2 ${width} ${height + 4}`, preserveAspectRatio: "none", class: "chart" });
  if (points.length) {
    picture.append(svg("polygon", { points: `0,${height} ${points.join(" ")} ${width},${height}` }));
    picture.append(svg("polyline", { points: points.join(" ") }));
  }
  return el("figure", {}, el("figcaption", {}, el("span", {}, label), el("strong", {}, text)), picture);
}

const ROWS = 200, ROWS_MAX = 2000; // rows at first and with each wish for more; a page's memory

// columns: {title, cell(item) -> text or node, kind?: a class}.  Rows are found again by their id, so that what
// is under the pointer stays there.  Who wants more rows than `wanted` lets the table's node tell: event "more".
export function table(name, columns, empty) {
  const body = el("tbody");
  const node = el("table", { "aria-label": name },
    el("thead", {}, el("tr", {}, ...columns.map((c) => el("th", {}, c.title)))), body);
  const none = el("p.none", {}, empty);
  const rows = new Map();
  const rest = el("button.rest", { type: "button", hidden: true, onclick: () => {
    self.wanted += ROWS;
    self.node.dispatchEvent(new CustomEvent("more", { bubbles: true }));
  } });

  function show(row, item) {
    columns.forEach((column, i) => {
      const value = column.cell(item);
      const cell = row.children[i];
      if (value instanceof Node) {
        if (cell.dataset.state !== value.dataset.state || !cell.firstChild) {
          cell.replaceChildren(value);
          cell.dataset.state = value.dataset.state;
        }
      } else if (cell.textContent !== String(value)) cell.textContent = value;
    });
  }

  let shown = [[], false];
  const self = {
    node: el("div.scroll", {}, node, none, rest),
    wanted: ROWS,
    // more: there are others behind these
    update(items, more = false) {
      shown = [items, more];
      rest.hidden = !more;
      rest.disabled = self.wanted >= ROWS_MAX;
      rest.textContent = rest.disabled ? `More than ${ROWS_MAX}: the command line lists all` : "Show more";
      none.hidden = items.length > 0;
      node.hidden = items.length === 0;
      const seen = new Set(items.map((item) => item.id));
      for (const [id, row] of rows) {
        if (seen.has(id)) continue;
        row.remove();
        rows.delete(id);
      }
      items.forEach((item, i) => {
        let row = rows.get(item.id);
        if (!row) {
          row = el("tr", { "data-id": item.id }, ...columns.map((c) => el(c.kind ? `td.${c.kind}` : "td")));
          rows.set(item.id, row);
        }
        show(row, item);
        if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
      });
    },
    // The same entries: what is known of them has changed.
    again: () => self.update(...shown),
  };
  return self;
}

// A cell of nodes, made anew only when `state` has changed.
export function cell(state, ...children) {
  const node = el("span.actions", {}, ...children);
  node.dataset.state = state;
  return node;
}

// --- for people ---------------------------------------------------------------------------------

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (n = Number(n ?? 0); n >= 1024 && at < units.length - 1; at++) n /= 1024;
  return `${n < 10 && at > 0 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export function seconds(s) {
  if (s < 0) return "now";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

const at = (time) => Number(time?.unixNs ?? 0) / 1e9;
export const since = (time) => (at(time) ? seconds(Date.now() / 1000 - at(time)) : "");
export const until = (time) => (at(time) ? seconds(at(time) - Date.now() / 1000) : "");
export const between = (from, to) => (at(from) && at(to) ? seconds(at(to) - at(from)) : "");

// "UNIT_STATE_RUNNING" -> "running"
export const word = (name, prefix) => (name ?? "").replace(prefix, "").toLowerCase().replaceAll("_", " ");

// How a process ended, as a shell would tell it.
export function outcome(result) {
  if (!result) return "";
  if (result.outcome === "OUTCOME_EXITED") return `exit ${result.exitCode ?? 0}`;
  if (result.outcome === "OUTCOME_SIGNALED") return `signal ${result.signal}`;
  return result.message || word(result.outcome, "OUTCOME_");
}
