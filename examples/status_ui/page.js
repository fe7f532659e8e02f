// The page: three limits, a button and a gauge for the chosen limit, and a plot of each limit.

import { createRateLimit } from '/tollgate-client.js';
import { createPlot } from '/plot.js';

const TITLES = { bucket: 'Token bucket', fixed: 'Fixed window', sliding: 'Sliding window' };

const byId = (id) => document.getElementById(id);
const [button, label, countdown, gauge, left, next, news, trouble] = [
  'send', 'label', 'countdown', 'gauge', 'left', 'next', 'news', 'trouble',
].map(byId);
const panel = button.closest('section');

/** The projected state and the plot of each limit. */
const limits = Object.keys(TITLES).map((name) => ({
  name,
  store: createRateLimit({ url: `/limits/${name}` }),
  plot: createPlot(document.querySelector(`figure[data-limit=${name}]`), TITLES[name]),
  /** The time at which the plot was last updated. */
  seen: null,
}));
let chosen = limits[0];
let sending = false;
/** What was last announced to screen readers: `true` if the button was enabled. */
let announced = null;

for (const limit of limits) {
  limit.store.subscribe(draw);
}
for (const radio of document.querySelectorAll('input[name=limit]')) {
  radio.addEventListener('change', () => choose(radio.value));
}
// After a reload, the browser may restore the chosen limit.
choose(document.querySelector('input[name=limit]:checked').value);
button.addEventListener('click', send);
document.addEventListener('visibilitychange', () => {
  // Another tab of the same user may have sent messages.
  if (document.visibilityState === 'visible') {
    limits.forEach(({ store }) => store.refresh());
  }
});
setInterval(draw, matchMedia('(prefers-reduced-motion: reduce)').matches ? 1000 : 100);

function choose(name) {
  chosen = limits.find((limit) => limit.name === name);
  panel.dataset.limit = name;
  announced = null;
  draw();
}

async function send() {
  // The button is never `disabled`, because it would then lose the keyboard focus. Instead, it ignores clicks.
  if (sending || !chosen.store.getStatus().ok) {
    return;
  }
  sending = true;
  await Promise.all(limits.map(sendUnder));
  sending = false;
  draw();
}

async function sendUnder({ name, store, plot }) {
  const sent = Date.now();
  try {
    const response = await fetch(`/send/${name}`, { method: 'POST' });
    if (response.ok) {
      // Count from now, because counting from the time of sending could enable the button too early.
      store.spend(1);
    }
    store.observe(response);
    plot.click(sent, response.ok);
  } catch {
    // The server is unreachable. The refresh shows the error and retries.
    store.refresh();
  }
}

function draw() {
  const now = Date.now();
  for (const limit of limits) {
    drawPlot(limit, now);
  }
  drawButton(now);
  drawGauge(now);
  const { error } = chosen.store.getStatus();
  trouble.hidden = !error;
  trouble.textContent = error ? 'The server is not responding.' : '';
}

function drawPlot(limit, now) {
  const { store, plot } = limit;
  const check = store.check(now);
  if (!check) {
    return;
  }
  // Timers in background tabs run rarely, so compute the points in between.
  for (let at = Math.max(limit.seen ?? now, now - 60_000) + 100; at < now; at += 100) {
    plot.record(at, store.check(at).value);
  }
  plot.record(now, check.value);
  limit.seen = now;
  plot.show(now, check.config.capacity, (at) => store.check(at).value);
}

function drawButton(now) {
  const { ok, retryAt } = chosen.store.getStatus();
  const seconds = retryAt === null ? null : Math.max(Math.ceil((retryAt - now) / 1000), 1);
  setAttribute(button, 'aria-disabled', String(!ok));
  setText(label, ok ? 'Send a message' : 'Send again');
  setText(countdown, ok || seconds === null ? '' : ` in ${seconds} s`);
  // Announce only changes, not every second.
  if (announced !== ok) {
    const stopped = `No messages left. You can send again in ${seconds} seconds.`;
    setText(news, ok ? (announced === null ? '' : 'You can send again.') : stopped);
    announced = ok;
  }
}

function drawGauge(now) {
  const check = chosen.store.check(now);
  if (!check) {
    return;
  }
  const { value, config } = check;
  const { capacity } = config;
  while (gauge.children.length < capacity) {
    const pip = document.createElement('div');
    pip.className = 'pip';
    pip.append(document.createElement('i'));
    gauge.append(pip);
  }
  // The time at which the next token arrives, and the elapsed fraction of the wait.
  const more = value < capacity ? chosen.store.check(now, value + 1).retryAt : null;
  const step = config.period / 1000 / (config.algorithm === 'fixed_window' ? 1 : config.rate);
  const part = more === null ? 0 : Math.min(Math.max(1 - (more - now) / step, 0), 1);
  [...gauge.children].forEach((pip, i) => {
    const filled = i < value ? 1 : i === value ? part : 0;
    pip.classList.toggle('coming', i >= value);
    pip.firstChild.style.transform = `scaleX(${filled})`;
  });
  setAttribute(gauge, 'aria-valuemax', String(capacity));
  setAttribute(gauge, 'aria-valuenow', String(value));
  setAttribute(gauge, 'aria-valuetext', `${value} of ${capacity} left`);
  setText(left, `${value} of ${capacity} left`);
  setText(next, more === null ? '' : `more in ${Math.max(Math.ceil((more - now) / 1000), 1)} s`);
}

/** Sets the text only if it changes, to avoid needless announcements and layouts. */
function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}
