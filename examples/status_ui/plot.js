// The plot of a limit: the messages left during the last minute, the outcome of each click, and the forecast.

const PAST = 60_000;
const AHEAD = 30_000;
// Margins for the axis labels, and for the outcomes of clicks.
const SIDES = { left: 22, right: 6, top: 8, bottom: 38 };
const SVG = 'http://www.w3.org/2000/svg';

/** Creates a plot in `figure`. All times are in milliseconds on the browser's clock. */
export function createPlot(figure, title) {
  const svg = element('svg', { role: 'img' });
  const name = element('title', {}, title);
  const grid = element('g', { class: 'grid' });
  const area = element('path', { class: 'area' });
  const past = element('path', { class: 'past' });
  const ahead = element('path', { class: 'ahead' });
  const marks = element('g', {});
  const scale = element('g', {});
  svg.append(name, grid, area, past, ahead, marks, scale);
  figure.append(svg);

  /** The number of messages left from each instant on. */
  let points = [];
  let clicks = [];

  function record(at, value) {
    const last = points.at(-1);
    if (!last || last.value !== value) {
      points.push({ at, value });
    }
    // Keep one point before the left edge, for the value at the edge.
    while (points.length > 1 && points[1].at < at - PAST - 1000) {
      points.shift();
    }
  }

  function click(at, ok) {
    clicks.push({ at, ok });
    clicks = clicks.filter((one) => one.at > at - PAST);
  }

  /** Draws the plot at `now`. `predict(at)` returns the number of messages left at a future instant. */
  function show(now, capacity, predict) {
    const { width, height } = svg.getBoundingClientRect();
    if (width === 0 || points.length === 0) {
      return;
    }
    const floor = height - SIDES.bottom;
    const x = (at) => SIDES.left + ((at - now + PAST) / (PAST + AHEAD)) * (width - SIDES.left - SIDES.right);
    const y = (value) => SIDES.top + (1 - value / capacity) * (floor - SIDES.top);

    const from = Math.max(points[0].at, now - PAST);
    let line = '';
    for (const { at, value } of points) {
      line += line ? `H${px(x(Math.max(at, from)))}V${px(y(value))}` : `M${px(x(from))} ${px(y(value))}`;
    }
    line += `H${px(x(now))}`;
    past.setAttribute('d', line);
    area.setAttribute('d', `${line}V${px(floor)}H${px(x(from))}Z`);

    let value = predict(now);
    line = `M${px(x(now))} ${px(y(value))}`;
    for (let at = now; at <= now + AHEAD; at += 100) {
      const then = predict(at);
      if (then !== value) {
        line += `H${px(x(at))}V${px(y(then))}`;
        value = then;
      }
    }
    ahead.setAttribute('d', `${line}H${px(x(now + AHEAD))}`);

    grid.replaceChildren(
      ...[0, capacity / 2, capacity].map((level) => across(SIDES.left, width - SIDES.right, y(level))),
      element('line', { class: 'now', x1: px(x(now)), x2: px(x(now)), y1: SIDES.top, y2: floor + 18 }),
    );
    marks.replaceChildren(...clicks.filter(({ at }) => at > now - PAST).map(({ at, ok }) => mark(x(at), floor + 10, ok)));
    scale.replaceChildren(
      ...[0, capacity].map((level) => label(SIDES.left - 8, y(level) + 4, 'end', String(level))),
      ...[-60, -30, 30].map((s) => label(x(now + s * 1000), height - 4, anchorOf(s), s < 0 ? `${-s} s ago` : `in ${s} s`)),
      label(x(now), height - 4, 'middle', 'now'),
    );
    const refused = clicks.filter(({ ok }) => !ok).length;
    const summary = `${title}: ${predict(now)} of ${capacity} left; in the last minute ${clicks.length - refused} passed, ${refused} refused`;
    if (name.textContent !== summary) {
      name.textContent = summary;
    }
  }

  return { record, click, show };
}

function mark(x, y, ok) {
  return ok
    ? element('path', { class: 'passed', d: `M${px(x)} ${px(y - 5)}v10` })
    : element('path', { class: 'refused', d: `M${px(x - 3.5)} ${px(y - 3.5)}l7 7m0-7l-7 7` });
}

function across(x1, x2, y) {
  return element('line', { x1, x2, y1: px(y), y2: px(y) });
}

/** Returns the anchor that keeps a label of the time axis within the plot. */
function anchorOf(seconds) {
  return seconds === -60 ? 'start' : seconds === 30 ? 'end' : 'middle';
}

function label(x, y, anchor, text) {
  return element('text', { x: px(x), y: px(y), 'text-anchor': anchor }, text);
}

function element(name, attributes, text = '') {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.textContent = text;
  return made;
}

function px(number) {
  return Math.round(number * 10) / 10;
}
