// tenants.js - tenants on the dashboard: their limits and use, and their keys.
import { ApiError, call, fill } from "./api.js";
import { bytes, cell, el, since, table, until } from "./dom.js";

const SCOPES = ["run", "read", "audit", "tenant-admin"];
const LIVES = [[0, "never ends"], [1, "1 day"], [30, "30 days"], [365, "1 year"]];
const DAY_NS = 86400e9;

const has = (who, ...scopes) => (who.scopes ?? []).some((scope) => scopes.includes(scope));
export const mayManage = (who) => has(who, "admin", "tenant-admin");

// What is changed here of TenantLimits: each as a person says it, and as the field has it.
const plain = [Number, (n) => String(Math.round(n))];
const LIMITS = [
  ["sandboxes", "Sandboxes and jobs at once", ...plain],
  ["vcpuMilli", "vCPUs", (n) => Number(n) / 1000, (n) => String(Math.round(n * 1000))],
  ["memoryMib", "Memory, MiB", ...plain],
  ["diskMib", "Disk, MiB", ...plain],
  ["rateIntervalUs", "Submissions a second", (n) => Number((1e6 / Number(n || 1e6)).toPrecision(3)), (n) => String(Math.round(1e6 / n))],
  ["rateBurst", "… at once", ...plain],
  ["queueMax", "Jobs that wait", ...plain],
  ["weight", "Share when it is full", ...plain],
  ["egressBytesPerPeriod", "Sent in a period, MiB", (n) => Number(n) / 2 ** 20, (n) => String(Math.round(n * 2 ** 20))],
];

const limit = (tenant, name) => Number(tenant.limits?.[name] ?? 0);
const tenantLink = (name) => cell(name, el("a", { href: `#/tenant/${name}` }, name));

// --- all of them --------------------------------------------------------------------------------

// make: {button, doing, fail} of app.js
export const tenants = ({ doing }) => () => {
  const name = el("input", { name: "tenant", "aria-label": "name", placeholder: "a name", pattern: "[a-z][a-z0-9\\-]{0,62}", autocomplete: "off", required: true });
  const list = table("Tenants", [
    { title: "Tenant", cell: (t) => tenantLink(t.name) },
    { title: "Guests", cell: (t) => (t.guestSeparation === "shared-ok" ? "shared kernels accepted" : "isolated") },
    { title: "Network", cell: (t) => (t.limits?.network ? "by grant" : "none") },
    { title: "At once", kind: "number", cell: (t) => limit(t, "sandboxes") },
    { title: "vCPUs", kind: "number", cell: (t) => limit(t, "vcpuMilli") / 1000 },
    { title: "Memory", kind: "number", cell: (t) => bytes(limit(t, "memoryMib") * 2 ** 20) },
    { title: "Age", kind: "number", cell: (t) => since(t.created) },
  ], "There is no tenant.");
  const form = el("form.inline", {
    onsubmit: doing(async () => {
      if (await exists(name.value)) throw new ApiError("already_exists", `There is a tenant ${name.value}.`);
      await call("TenantService/PutTenant", { name: name.value });
      location.hash = `#/tenant/${name.value}`;
    }),
  }, name, el("button.primary", { type: "submit" }, "New tenant"));
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Tenants"), form), list.node),
    refresh: () => fill(list, "TenantService/ListTenants", "tenants", {}, (t) => ({ ...t, id: t.name })),
  };
};

// Putting one that is there would set its limits anew.
async function exists(name) {
  try {
    await call("TenantService/GetTenant", { name });
    return true;
  } catch (error) {
    if (error.code === "not_found") return false;
    throw error;
  }
}

// --- one of them --------------------------------------------------------------------------------

function limits(name, doing) {
  let known = null;
  const inputs = new Map(LIMITS.map(([field]) => [field, el("input", { type: "number", name: field, min: 0, step: "any", required: true })]));
  const network = el("input", { type: "checkbox", name: "network" });
  const countCalls = el("input", { type: "checkbox", name: "countCalls" });
  const separation = el("select", { name: "separation" },
    el("option", { value: "isolated" }, "isolated"), el("option", { value: "shared-ok" }, "shared kernels accepted"));
  const show = (tenant) => {
    known = tenant;
    for (const [field, , read] of LIMITS) inputs.get(field).value = read(tenant.limits?.[field] ?? 0);
    network.checked = Boolean(tenant.limits?.network);
    countCalls.checked = Boolean(tenant.limits?.countCalls);
    separation.value = tenant.guestSeparation || "isolated";
  };
  const row = (title, input) => el("label", {}, el("span", {}, title), input);
  const node = el("form.fields", {
    onsubmit: doing(async () => {
      const changed = { ...known.limits, network: network.checked, countCalls: countCalls.checked };
      for (const [field, , , write] of LIMITS) changed[field] = write(Number(inputs.get(field).value));
      show((await call("TenantService/PutTenant", { name, limits: changed, guestSeparation: separation.value })).tenant);
    }),
  }, ...LIMITS.map(([field, title]) => row(title, inputs.get(field))), row("Guests", separation), row("Network by grant", network),
  row("Count system calls", countCalls),
  el("button.primary", { type: "submit" }, "Save"));
  return { node, load: async () => show((await call("TenantService/GetTenant", { name })).tenant) };
}

const stateOf = (k) => (k.revoked ? "revoked" : until(k.expires) === "now" ? "expired" : "live");

function keys(name, { button, doing }) {
  const scopes = SCOPES.map((scope) => el("input", { type: "checkbox", name: scope, checked: scope === "run" || scope === "read" }));
  const life = el("select", { name: "life", "aria-label": "life" }, ...LIVES.map(([days, text]) => el("option", { value: days }, text)));
  const note = el("input", { name: "note", "aria-label": "note", placeholder: "what it is for", maxlength: 100, autocomplete: "off" });
  const made = el("div");
  const list = table("Keys", [
    { title: "Key", cell: (k) => cell(k.id, el("code", {}, k.id)) },
    { title: "State", cell: (k) => cell(stateOf(k), el(`span.badge.${stateOf(k)}`, {}, stateOf(k))) },
    { title: "Scopes", cell: (k) => (k.scopes ?? []).join(", ") },
    { title: "For", kind: "command", cell: (k) => k.note ?? "" },
    { title: "Age", kind: "number", cell: (k) => since(k.created) },
    { title: "Ends in", kind: "number", cell: (k) => until(k.expires) },
    { title: "Used", kind: "number", cell: (k) => since(k.lastUsed) || "never" },
    {
      title: "",
      cell: (k) => (k.revoked ? cell("revoked") : cell("live", button("Revoke", () => confirm(`Revoke the key ${k.id}? Who uses it is refused from then on.`) &&
        call("TenantService/RevokeKey", { keyId: k.id }), ".danger"))),
    },
  ], "There is no key.");
  const form = el("form.inline", {
    onsubmit: doing(async () => {
      const { secret } = await call("TenantService/CreateKey", {
        tenant: name, scopes: SCOPES.filter((_, i) => scopes[i].checked), ttlNs: String(Number(life.value) * DAY_NS), note: note.value,
      });
      made.replaceChildren(el("p.secret", {}, "It is shown this once: ", el("code", {}, secret), " ",
        button("Copy", () => navigator.clipboard.writeText(secret)), button("Hide", () => made.replaceChildren())));
      note.value = "";
    }),
  }, note, ...SCOPES.map((scope, i) => el("label", {}, scopes[i], ` ${scope}`)), life, el("button.primary", { type: "submit" }, "New key"));
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Keys")), form, made, list.node),
    refresh: () => fill(list, "TenantService/ListKeys", "keys", { tenant: name }),
  };
}

// tiles: what it holds and uses, {node, refresh}
export const tenant = (make, who, tiles) => (name) => {
  const is_admin = has(who(), "admin");
  const own = keys(name, make), used = tiles(name), limited = limits(name, make.doing);
  if (is_admin) limited.load().catch(make.fail);
  return {
    node: el("div.stack", {}, el("section", {}, el("header", {}, el("h2", {}, name)), used.node, is_admin ? limited.node : null), own.node),
    refresh: () => Promise.all([own.refresh(), used.refresh()]),
  };
};
