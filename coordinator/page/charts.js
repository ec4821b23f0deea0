// Curves (SVG) and the map (canvas), drawn again from what they were last given: by a refresh, a change of size or theme.
import {element} from '/tables.js';

const kSvg = 'http://www.w3.org/2000/svg';
const kMargin = {left: 44, right: 12, top: 8, bottom: 22};
export const kStages = ['initialized', 'offline', 'online', 'serving'];

function svg(name, attributes, ...children) {
  const e = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

export function number(value, digits = 3) {
  return value === null || value === undefined ? '-' : value.toFixed(digits);
}

export function clock(seconds, range) {
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'});
  return range === 'month' ? date.toLocaleDateString([], {month: 'short', day: 'numeric'}) : time;
}

// Round values between least and most, about so many.
function ticksOf(least, most, count) {
  const rough = (most - least) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let k = Math.ceil(least / step - 1e-9); k * step <= most + 1e-9 * step; ++k) ticks.push(k * step);
  return {ticks, digits: Math.max(0, -Math.floor(Math.log10(step)))};
}

// --- the tooltip ---------------------------------------------------------------------------------------------------

const tip = document.getElementById('tip');

export function showTip(x, y, title, facts) {
  const list = element('dl');
  for (const [name, value] of facts) list.append(element('dt', {textContent: name}), element('dd', {textContent: value}));
  tip.replaceChildren(element('b', {textContent: title}), list);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  const top = Math.min(y + 14, innerHeight - box.height - 4);
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

export function hideTip() {
  tip.hidden = true;
}

addEventListener('keydown', (e) => {
  if (e.key === 'Escape') hideTip();
});

// --- curves over time ----------------------------------------------------------------------------------------------

class TimeChart {
  constructor(box, say) {
    this.box = box;
    this.say = say;
    this.at = null;
    box.addEventListener('pointermove', (e) => this.point(this.indexAt(e.clientX), false));
    box.addEventListener('pointerleave', () => this.point(null, false));
    box.addEventListener('blur', () => this.point(null, false));
    box.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  key(e) {
    if (!this.data) return;
    const known = [...this.data.time_s.keys()].filter((i) => this.factsAt(i).some(([, value]) => value !== '-' && value !== '0'));
    const first = known[0], last = known.at(-1), at = this.at ?? Infinity;
    const to = {ArrowLeft: known.findLast((i) => i < at) ?? first, ArrowRight: known.find((i) => i > at) ?? last, Home: first, End: last}[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.point(to, true);
  }

  show(data) {
    this.data = data;
    this.draw();
  }

  get size() {
    return {width: this.box.clientWidth, height: this.box.clientHeight};
  }

  // Few agents end an episode less often than a cell is long: what is closer than this is one line.
  get gap() {
    return Math.ceil(this.data.time_s.length / 10);
  }

  x(i) {
    const n = this.data.time_s.length;
    return kMargin.left + (this.size.width - kMargin.left - kMargin.right) * (n > 1 ? i / (n - 1) : 0);
  }

  indexAt(clientX) {
    if (!this.data) return null;
    const n = this.data.time_s.length;
    const inside = clientX - this.box.getBoundingClientRect().left - kMargin.left;
    return Math.min(n - 1, Math.max(0, Math.round(inside / (this.size.width - kMargin.left - kMargin.right) * (n - 1))));
  }

  point(i, loud) {
    this.at = i;
    this.draw();
    if (i === null || !this.data || !this.hasData()) return hideTip();
    const box = this.box.getBoundingClientRect();
    const facts = this.factsAt(i);
    const title = new Date(this.data.time_s[i] * 1000).toLocaleString();
    showTip(box.left + this.x(i), box.top + 20, title, facts);
    if (loud) this.say(title + ': ' + facts.map((f) => f.join(' ')).join(', '));
  }

  axes(least, most, percent) {
    const {width, height} = this.size;
    const y = (v) => kMargin.top + (height - kMargin.top - kMargin.bottom) * (1 - (v - least) / (most - least));
    const out = [];
    const {ticks, digits} = ticksOf(least, most, 4);
    for (const v of ticks) {
      out.push(svg('line', {class: 'grid', x1: kMargin.left, x2: width - kMargin.right, y1: y(v), y2: y(v)}));
      const label = svg('text', {x: kMargin.left - 6, y: y(v) + 4, 'text-anchor': 'end'});
      label.textContent = percent ? Math.round(v * 100) + ' %' : v.toFixed(digits);
      out.push(label);
    }
    const n = this.data.time_s.length;
    const labels = Math.max(2, Math.min(6, Math.floor(width / 90)));
    for (let k = 0; k < labels; ++k) {
      const i = Math.round(k * (n - 1) / (labels - 1));
      const label = svg('text', {x: this.x(i), y: height - 6, 'text-anchor': k === 0 ? 'start' : k === labels - 1 ? 'end' : 'middle'});
      label.textContent = clock(this.data.time_s[i], this.data.range);
      out.push(label);
    }
    return {y, marks: out};
  }

  draw() {
    if (!this.data) return;
    const {width, height} = this.size;
    if (!this.hasData()) {
      this.box.replaceChildren(element('p', {className: 'empty', textContent: 'No episodes in this time.'}));
      this.box.setAttribute('aria-label', this.name + ': no episodes in this time');
      return;
    }
    const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'});
    root.append(...this.marks());
    if (this.at !== null) root.append(svg('line', {class: 'cursor', x1: this.x(this.at), x2: this.x(this.at), y1: kMargin.top, y2: height - kMargin.bottom}));
    this.box.replaceChildren(root);
    this.box.setAttribute('aria-label', this.words());
  }
}

const latest = (values) => values.findLast((v) => v !== null);

export class RewardChart extends TimeChart {
  name = 'Reward against the fallback';

  hasData() {
    return [...this.data.reward_mean, ...this.data.reward_fallback].some((v) => v !== null);
  }

  factsAt(i) {
    const {reward_mean: reward, reward_fallback: fallback, episodes} = this.data;
    return [['agents', number(reward[i])], ['fallback', number(fallback[i])],
            ['episodes', String(kStages.reduce((sum, s) => sum + episodes[s][i], 0))]];
  }

  words() {
    return `${this.name}. Latest: agents ${number(latest(this.data.reward_mean))}, fallback ${number(latest(this.data.reward_fallback))}. Arrow keys step through time.`;
  }

  marks() {
    const all = [...this.data.reward_mean, ...this.data.reward_fallback].filter((v) => v !== null);
    let least = Math.min(...all), most = Math.max(...all);
    const room = Math.max((most - least) * 0.08, 1e-3 * Math.max(1, Math.abs(most)));
    least -= room;
    most += room;
    const {y, marks} = this.axes(least, most, false);
    for (const [name, values] of [['fallback', this.data.reward_fallback], ['reward', this.data.reward_mean]]) {
      let path = '', before = -Infinity;
      values.forEach((v, i) => {
        if (v === null) return;
        path += `${i - before <= this.gap ? 'L' : 'M'}${this.x(i).toFixed(1)} ${y(v).toFixed(1)}`;
        before = i;
        if (i === this.at) marks.push(svg('circle', {class: 'dot ' + name, cx: this.x(i), cy: y(v), r: 3.5}));
      });
      // Round ends make a point of a line without length.
      marks.push(svg('path', {class: 'series ' + name, d: path.replaceAll(/M([\d. ]+)(?=M|$)/g, 'M$1L$1')}));
    }
    return marks;
  }
}

export class StageChart extends TimeChart {
  name = 'Stages over time';

  total(i) {
    return kStages.reduce((sum, s) => sum + this.data.episodes[s][i], 0);
  }

  hasData() {
    return this.data.time_s.some((_, i) => this.total(i) > 0);
  }

  factsAt(i) {
    const total = this.total(i);
    return kStages.toReversed().map((s) => [s, total ? `${Math.round(100 * this.data.episodes[s][i] / total)} % (${this.data.episodes[s][i]})` : '-']);
  }

  words() {
    const i = this.data.time_s.findLastIndex((_, k) => this.total(k) > 0);
    return `${this.name}. Latest: ${this.factsAt(i).map((f) => f.join(' ')).join(', ')}. Arrow keys step through time.`;
  }

  marks() {
    const {y, marks} = this.axes(0, 1, true);
    const n = this.data.time_s.length;
    const step = (this.size.width - kMargin.left - kMargin.right) / Math.max(1, n - 1);
    let before = -Infinity;
    for (let i = 0; i < n; ++i) {
      const total = this.total(i);
      if (total === 0) continue;
      let below = 0;
      const cells = i - before <= this.gap ? i - before : 1;
      before = i;
      const left = Math.max(kMargin.left, this.x(i) + step / 2 - cells * step + (step > 4 ? 1 : 0));
      const right = Math.min(this.size.width - kMargin.right, this.x(i) + step / 2);
      for (const s of kStages.toReversed()) {
        const share = this.data.episodes[s][i] / total;
        if (share > 0) marks.push(svg('rect', {class: s, x: left, width: right - left, y: y(below + share), height: y(below) - y(below + share)}));
        below += share;
      }
    }
    return marks;
  }
}

// --- the map -------------------------------------------------------------------------------------------------------

const kColours = 8;  // categories that the eye still tells apart; the others are grey
const kShapes = ['circle', 'square', 'triangle', 'diamond'];

function trace(context, shape, x, y, r) {
  context.beginPath();
  if (shape === 'square') context.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
  else if (shape === 'triangle') { context.moveTo(x, y - r * 1.2); context.lineTo(x + r * 1.1, y + r * 0.8); context.lineTo(x - r * 1.1, y + r * 0.8); context.closePath(); }
  else if (shape === 'diamond') { context.moveTo(x, y - r * 1.3); context.lineTo(x + r * 1.3, y); context.lineTo(x, y + r * 1.3); context.lineTo(x - r * 1.3, y); context.closePath(); }
  else context.arc(x, y, r, 0, 2 * Math.PI);
}

export class EmbeddingMap {
  constructor(canvas, legend, say) {
    Object.assign(this, {canvas, legend, say, by: 'application', only: null, at: null, points: []});
    canvas.addEventListener('pointermove', (e) => this.point(this.nearest(e.clientX, e.clientY), false));
    canvas.addEventListener('pointerleave', () => this.point(null, false));
    canvas.addEventListener('blur', () => this.point(null, false));
    canvas.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  show(data, by) {
    const kept = this.at;
    if (by !== this.by) this.only = null;
    this.by = by;
    this.data = data;
    this.points = data.points;
    this.at = kept && this.points.find((p) => p.node === kept.node && p.agent === kept.agent) || null;
    this.sortCategories();
    this.drawLegend();
    this.draw();
  }

  category(p) {
    return this.by === 'model_version' ? (p.model_version ? 'v' + p.model_version : 'none') : p[this.by] || 'none';
  }

  // The most frequent get the colours; equal ones by name, so that colours stay between refreshes.
  sortCategories() {
    const counts = new Map();
    for (const p of this.points) counts.set(this.category(p), (counts.get(this.category(p)) ?? 0) + 1);
    const all = this.by === 'stage' ? kStages.filter((s) => counts.has(s)).map((s) => [s, counts.get(s)])
                                    : [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const shown = all.length > kColours ? all.slice(0, kColours - 1) : all;
    this.styles = new Map(shown.map(([name, count], i) =>
      [name, {count, colour: this.by === 'stage' ? '--stage-' + name : '--c' + i, shape: kShapes[i % kShapes.length]}]));
    const rest = all.slice(shown.length).reduce((sum, [, count]) => sum + count, 0);
    this.rest = {count: rest, colour: '--rest', shape: 'circle'};
    if (this.only !== null && this.only !== 'rest' && !this.styles.has(this.only.slice(5))) this.only = null;
  }

  styleOf(p) {
    return this.styles.get(this.category(p)) ?? this.rest;
  }

  keyOf(p) {
    return this.styles.has(this.category(p)) ? 'name:' + this.category(p) : 'rest';
  }

  drawLegend() {
    const focused = this.legend.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const rows = [...this.styles].map(([name, s]) => ['name:' + name, name, s]);
    if (this.rest.count > 0) rows.push(['rest', 'others', this.rest]);
    this.legend.replaceChildren(...rows.map(([key, name, s]) => {
      const swatch = element('span', {className: 'swatch'});
      swatch.style.background = `var(${s.colour})`;
      const button = element('button', {type: 'button', title: 'Show these alone'}, swatch,
                             element('span', {className: 'name', textContent: name}), String(s.count));
      button.dataset.key = key;
      button.setAttribute('aria-pressed', String(this.only === key));
      button.addEventListener('click', () => {
        this.only = this.only === key ? null : key;
        this.drawLegend();
        this.draw();
      });
      return element('li', {}, button);
    }));
    if (focused) this.legend.querySelectorAll('button').forEach((b) => b.dataset.key === focused && b.focus());
  }

  place() {
    const {clientWidth: width, clientHeight: height} = this.canvas;
    const xs = this.points.map((p) => p.x), ys = this.points.map((p) => p.y);
    const span = (all) => [all.reduce((a, b) => Math.min(a, b), Infinity), all.reduce((a, b) => Math.max(a, b), -Infinity)];
    const [x0, x1] = span(xs), [y0, y1] = span(ys);
    const pad = 14;
    const scale = Math.min((width - 2 * pad) / Math.max(x1 - x0, 1e-9), (height - 2 * pad) / Math.max(y1 - y0, 1e-9));
    // The second axis may be much shorter: it is stretched, up to four times, or nobody would see it.
    const sx = Math.min((width - 2 * pad) / Math.max(x1 - x0, 1e-9), 4 * scale), sy = Math.min((height - 2 * pad) / Math.max(y1 - y0, 1e-9), 4 * scale);
    return (p) => [width / 2 + (p.x - (x0 + x1) / 2) * sx, height / 2 - (p.y - (y0 + y1) / 2) * sy];
  }

  visible(p) {
    return this.only === null || this.keyOf(p) === this.only;
  }

  draw() {
    const ratio = devicePixelRatio || 1;
    const {clientWidth: width, clientHeight: height} = this.canvas;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext('2d');
    context.scale(ratio, ratio);
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name);
    if (this.points.length === 0) {
      context.fillStyle = colour('--quiet');
      context.font = '14px system-ui, sans-serif';
      context.textAlign = 'center';
      context.fillText('No agent of this task has an embedding yet.', width / 2, height / 2);
      this.canvas.setAttribute('aria-label', 'Map of embeddings: no agent of this task has one yet');
      return;
    }
    const at = this.place();
    const radius = this.points.length > 400 ? 3 : 4.5;
    for (const strong of [false, true]) {
      for (const p of this.points) {
        if (this.visible(p) !== strong) continue;
        const style = this.styleOf(p);
        const [x, y] = at(p);
        context.globalAlpha = strong ? 0.85 : 0.12;
        context.fillStyle = colour(style.colour);
        trace(context, style.shape, x, y, radius);
        context.fill();
      }
    }
    context.globalAlpha = 1;
    if (this.at) {
      const [x, y] = at(this.at);
      context.strokeStyle = colour('--ink');
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, radius + 4, 0, 2 * Math.PI);
      context.stroke();
    }
    const groups = [...this.styles].slice(0, 5).map(([name, s]) => `${name} ${s.count}`).join(', ');
    this.canvas.setAttribute('aria-label', `Map of the embeddings of ${this.points.length} agents by ${this.by.replace('_', ' ')}: ${groups}. Arrow keys go from point to point.`);
  }

  nearest(clientX, clientY) {
    if (this.points.length === 0) return null;
    const box = this.canvas.getBoundingClientRect();
    const at = this.place();
    let best = null, least = 14 * 14;
    for (const p of this.points) {
      if (!this.visible(p)) continue;
      const [x, y] = at(p);
      const d = (x - clientX + box.left) ** 2 + (y - clientY + box.top) ** 2;
      if (d < least) [best, least] = [p, d];
    }
    return best;
  }

  // To the nearest point in that direction.
  key(e) {
    const direction = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[e.key];
    if (!direction || this.points.length === 0) return;
    e.preventDefault();
    const at = this.place();
    const from = this.at ? at(this.at) : [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    let best = null, least = Infinity;
    for (const p of this.points) {
      if (p === this.at || !this.visible(p)) continue;
      const [x, y] = at(p);
      const dx = x - from[0], dy = y - from[1];
      const along = dx * direction[0] + dy * direction[1], across = Math.abs(dx * direction[1]) + Math.abs(dy * direction[0]);
      if (this.at && (along <= 0 || across > 2 * along)) continue;
      const d = Math.hypot(along, 2 * across);
      if (d < least) [best, least] = [p, d];
    }
    if (best) this.point(best, true);
  }

  point(p, loud) {
    if (p === this.at && !loud) return;
    this.at = p;
    this.draw();
    if (!p) return hideTip();
    const [x, y] = this.place()(p);
    const box = this.canvas.getBoundingClientRect();
    const facts = [['node', p.node], ['application', p.application || '-'], ['stage', p.stage], ['reward', number(p.reward_mean)],
                   ['fallback', number(p.reward_fallback)], ['model', p.model_version ? 'v' + p.model_version : '-']];
    showTip(box.left + x, box.top + y, p.target || p.agent, facts);
    if (loud) this.say((p.target || p.agent) + ': ' + facts.map((f) => f.join(' ')).join(', '));
  }
}
