"use strict";
(() => {
  const all = (where, what) => Array.from(where.querySelectorAll(what));
  const one = (id) => document.getElementById(id);
  for (const hidden of all(document, ".tools[hidden], .copies[hidden]")) hidden.hidden = false;

  // Copying: what stands in data-copy, also where a file has no clipboard.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    await copy(button.dataset.copy);
    const before = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  });

  // A link to a rule's page opens it.
  const opened = () => {
    const target = location.hash.length > 1 && one(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", opened);
  opened();
  addEventListener("beforeprint", () => {
    for (const closed of all(document, "#graphs ~ .groups > details")) closed.open = true;
  });

  // Findings: search, filter, sort.
  const tools = one("finding-tools");
  if (tools) {
    const list = one("cards");
    const cards = all(list, ".line");
    const search = one("finding-search");
    const sort = one("finding-sort");
    const texts = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));
    const orders = {
      rank: (a, b) => a.dataset.rank - b.dataset.rank,
      seconds: (a, b) => b.dataset.seconds - a.dataset.seconds || a.dataset.rank - b.dataset.rank,
      // By code point, so that what has no place ("~") comes last.
      place: (a, b) => (a.dataset.place < b.dataset.place ? -1 : 1),
    };
    const show = () => {
      const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const severities = new Set(
        all(tools, "input[type=checkbox]").filter((box) => box.checked).map((box) => box.value));
      let shown = 0;
      for (const card of cards) {
        const fits = severities.has(card.dataset.severity)
          && wanted.every((word) => texts.get(card).includes(word));
        card.hidden = !fits;
        shown += fits;
      }
      list.append(...cards.slice().sort(orders[sort.value]));
      one("finding-count").textContent =
        shown === cards.length ? "" : `${shown} of ${cards.length} lines`;
    };
    tools.addEventListener("input", show);
  }

  // The timeline: zoom and what is under the pointer.
  const tracks = one("tracks");
  if (tracks) {
    const drawing = tracks.querySelector("svg");
    const [, , width, height] = drawing.getAttribute("viewBox").split(" ").map(Number);
    const total = Number(tracks.dataset.total);
    const axis = one("axis");
    const found = one("timeline-found");
    let [from, to] = [0, 1];
    const label = (seconds) => seconds >= 1 ? `${+seconds.toPrecision(4)} s` : `${+(seconds * 1000).toPrecision(3)} ms`;
    const draw = () => {
      drawing.setAttribute("viewBox", `${from * width} 0 ${(to - from) * width} ${height}`);
      const span = (to - from) * total;
      const unit = 10 ** Math.floor(Math.log10(span));
      const size = [0.1, 0.2, 0.5, 1, 2].map((f) => unit * f).find((s) => span / s <= 8);
      axis.replaceChildren();
      for (let at = Math.ceil(from * total / size) * size; at <= to * total; at += size) {
        const tick = document.createElement("span");
        tick.style.left = `${(at / total - from) / (to - from) * 100}%`;
        tick.textContent = label(at);
        axis.append(tick);
      }
      one("timeline-span").textContent =
        from > 0 || to < 1 ? `${label(from * total)} to ${label(to * total)}` : "";
    };
    const set = (begin, end) => {
      const size = Math.min(1, Math.max(1e-5, end - begin));
      from = Math.min(1 - size, Math.max(0, begin));
      to = from + size;
      draw();
    };
    const zoom = (factor, at = 0.5) => {
      const size = to - from;
      const middle = from + size * at;
      set(middle - size * factor * at, middle + size * factor * (1 - at));
    };
    const moves = {
      in: () => zoom(0.5), out: () => zoom(2), all: () => set(0, 1),
      left: () => set(from - (to - from) / 3, to - (to - from) / 3),
      right: () => set(from + (to - from) / 3, to + (to - from) / 3),
    };
    one("timeline-tools").addEventListener("click", (event) => {
      const move = moves[event.target.dataset.zoom];
      if (move) move();
    });
    const share = (event) => {
      const box = drawing.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    drawing.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 || event.deltaX < 0 ? 0.7 : 1 / 0.7, share(event));
    }, { passive: false });
    let held = null;
    drawing.addEventListener("pointerdown", (event) => { held = [share(event), from, to]; });
    addEventListener("pointerup", () => { held = null; });
    drawing.addEventListener("pointermove", (event) => {
      if (held && to - from < 1) {
        const by = (held[0] - share(event)) * (held[2] - held[1]);
        set(held[1] + by, held[2] + by);
      }
      const title = event.target.querySelector && event.target.querySelector("title");
      if (title) {
        found.hidden = false;
        found.textContent = title.textContent.split("\n").join(" · ");
      }
    });
    draw();
  }
})();
