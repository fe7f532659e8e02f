// The page: three limits, a button that the chosen one holds, a gauge of it, and a plot of each.

import { createRateLimit } from '/tollgate-client.js';
import { createPlot } from '/plot.js';

const TITLES = { bucket: 'Token bucket', fixed: 'Fixed window', sliding: 'Sliding window' };

const byId = (id) => document.getElementById(id);
const [button, label, countdown, gauge, left, next, news, trouble] = [
  'send', 'label', 'countdown', 'gauge', 'left', 'next', 'news', 'trouble',
].map(byId);
const panel = button.closest('section');

/** Each limit: how it stands, projected in this page, and its plot. */
const limits = Object.keys(TITLES).map((name) => ({
  name,
  store: createRateLimit({ url: `/limits/${name}` }),
  plot: createPlot(document.querySelector(`figure[data-limit=${name}]`), TITLES[name]),
  /** Until when its plot knows what was left. */
  seen: null,
}));
let chosen = limits[0];
let sending = false;
/** What a screen reader was told last: whether the button works. */
let told = null;

for (const limit of limits) {
  limit.store.subscribe(draw);
}
for (const radio of document.querySelectorAll('input[name=limit]')) {
  radio.addEventListener('change', () => choose(radio.value));
}
// A browser may remember what was chosen before the page was loaded anew.
choose(document.querySelector('input[name=limit]:checked').value);
button.addEventListener('click', send);
document.addEventListener('visibilitychange', () => {
  // Another tab of the same user may have spent meanwhile.
  if (document.visibilityState === 'visible') {
    limits.forEach(({ store }) => store.refresh());
  }
});
setInterval(draw, matchMedia('(prefers-reduced-motion: reduce)').matches ? 1000 : 100);

function choose(name) {
  chosen = limits.find((limit) => limit.name === name);
  panel.dataset.limit = name;
  told = null;
  draw();
}

async function send() {
  // Not `disabled`, which would take the focus away from whoever uses a keyboard.
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
      // As of now, when it has been charged for sure: as of `sent` the button would come back before its time.
      store.spend(1);
    }
    store.observe(response);
    plot.click(sent, response.ok);
  } catch {
    // The server cannot be reached; asking how the limit stands finds out too, tells, and tries again.
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
  trouble.textContent = error ? 'The server does not answer just now.' : '';
}

function drawPlot(limit, now) {
  const { store, plot } = limit;
  const check = store.check(now);
  if (!check) {
    return;
  }
  // A tab in the background is seldom woken: what was left meanwhile is computed afterwards.
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
  // Once when it stops and once when it works again, not at each second.
  if (told !== ok) {
    const stopped = `No messages left. You can send again in ${seconds} seconds.`;
    setText(news, ok ? (told === null ? '' : 'You can send again.') : stopped);
    told = ok;
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
  // When one more is there, and how far the way to it has been gone.
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

/** Only what changes is written: a live region would speak, and a page be laid out, for nothing. */
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
