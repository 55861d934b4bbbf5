// Draws every chart of the page. Expressions are interpreted, not compiled, so that no `eval` is needed.
const views = new Map();

for (const block of document.querySelectorAll("script[data-chart]")) {
  const place = document.getElementById(block.dataset.chart);
  const options = { renderer: "svg", actions: false, ast: true, tooltip: { theme: "page" } };
  vegaEmbed(place, JSON.parse(block.textContent), options)
    .then(({ view }) => {
      views.set(place, view);
      const chooser = place.closest("[data-choice]")?.querySelector("select");
      if (chooser) choose(chooser);
    })
    .catch((error) => {
      place.textContent = `This chart could not be drawn (${error.message}); its numbers are in the tables.`;
    });
}

for (const chooser of document.querySelectorAll("[data-choice] select")) {
  chooser.addEventListener("change", () => choose(chooser));
}

function choose(chooser) {
  for (const place of chooser.closest("[data-choice]").querySelectorAll(".chart")) {
    views.get(place)?.signal("group", chooser.value).runAsync();
  }
}
