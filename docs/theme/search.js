// The search field of every page. The index is a script that is loaded when the field is first used, so that the search
// also works in a page opened as a file. `search` ranks as docs/site_search.py does.
(function () {
  const root = JSON.parse(document.getElementById("__config").textContent).base;
  let index = null, waiting = null;

  function script(path) {
    return new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = `${root}/${path}`;
      element.onload = resolve;
      element.onerror = () => reject(new Error(`${path} is missing`));
      document.head.append(element);
    });
  }

  function load() {
    waiting ??= Promise.all([script("theme/lunr.js"), script("search/index.js")]).then(() => {
      index = lunr.Index.load(window.rlxSearch.index);
    });
    return waiting;
  }

  function matches(word) {
    const found = index.query((query) => {
      query.term(word, { boost: 10 });
      query.term(word, { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
    });
    return found.length || word.length < 4 ? found : index.query((query) => query.term(word, { editDistance: 1 }));
  }

  function search(text) {
    const data = window.rlxSearch;
    const all = [...new Set(text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [])];
    const busy = all.filter((word) => !data.idle.includes(word));
    const words = busy.length ? busy : all;
    const scores = new Map(), counts = new Map();
    for (const word of words) {
      for (const { ref, score } of matches(word)) {
        scores.set(+ref, (scores.get(+ref) || 0) + score);
        counts.set(+ref, (counts.get(+ref) || 0) + 1);
      }
    }
    const rank = (number) => scores.get(number) * (counts.get(number) / words.length) ** 2;
    let ranked = [...scores.keys()].sort((a, b) => rank(b) - rank(a) || a - b);
    const name = text.trim().toLowerCase().replace(/\(\)$/, "").split(".").pop();
    if (Object.hasOwn(data.names, name)) {
      ranked = [data.names[name], ...ranked.filter((number) => number !== data.names[name])];
    }
    return ranked.map((number) => data.pages[number]);
  }

  const box = document.createElement("div");
  box.className = "rlx-search";
  box.innerHTML =
    '<input type="search" placeholder="Search  ( / )" aria-label="Search" autocomplete="off" spellcheck="false">' +
    '<ol hidden role="listbox" aria-label="Search results"></ol>';
  const header = document.querySelector(".md-header__inner");
  header.append(box);
  const [field, list] = box.children;
  let chosen = 0;

  function choose(place) {
    const rows = [...list.querySelectorAll("a")];
    if (!rows.length) return;
    chosen = (place + rows.length) % rows.length;
    rows.forEach((row, number) => row.classList.toggle("chosen", number === chosen));
    rows[chosen].scrollIntoView({ block: "nearest" });
  }

  function show() {
    list.replaceChildren();
    box.dataset.shown = field.value;
    list.hidden = !field.value.trim();
    if (list.hidden) return;
    const found = search(field.value).slice(0, 12);
    for (const [path, title, about] of found) {
      const row = document.createElement("li"), link = document.createElement("a");
      const head = document.createElement("b"), text = document.createElement("span");
      link.href = `${root}/${path}`;
      [head.textContent, text.textContent] = [title, about];
      link.append(head, text);
      row.append(link);
      list.append(row);
    }
    if (!found.length) list.innerHTML = "<li><p>No page has these words.</p></li>";
    choose(0);
  }

  function update() {
    load().then(show, (error) => {
      list.hidden = false;
      list.innerHTML = "<li><p></p></li>";
      list.querySelector("p").textContent = `The search does not work: ${error.message}.`;
    });
  }

  field.addEventListener("focus", load, { once: true });
  field.addEventListener("input", update);
  field.addEventListener("keydown", (event) => {
    const rows = list.querySelectorAll("a");
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter" && rows[chosen]) location.href = rows[chosen].href;
    else if (event.key === "Escape") { list.hidden = true; field.blur(); }
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", (event) => { if (!box.contains(event.target)) list.hidden = true; });
  document.addEventListener("keydown", (event) => {
    const writing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); field.focus(); }
  });
  const query = new URLSearchParams(location.search).get("q");
  if (query) { field.value = query; update(); }
})();
