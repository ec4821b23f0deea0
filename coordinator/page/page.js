// The fleet's page: asks the API every five seconds and shows what it says. What a person chose (filters, order, page) lives
// in `state` and in the address, so a refresh of either kind loses nothing.
import {element, Table} from '/tables.js';
import {clock, EmbeddingMap, kStages, number, RewardChart, StageChart} from '/charts.js';

const kRefreshMs = 5000;
const kSearchMs = 250;
const byId = (id) => document.getElementById(id);

// --- state ---------------------------------------------------------------------------------------------------------

const state = {
  task: 'resource-limits', application: '', range: 'hour', colour: 'application', model: '',
  agents: {q: '', stage: '', task: '', application: '', node: '', sort: 'node', offset: 0, limit: 50},
  nodes: {q: '', sort: 'node', offset: 0, limit: 25},
};

function restore() {
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    const [group, name] = key.includes('.') ? key.split('.') : [null, key];
    const target = group === null ? state : Object.hasOwn(state, group) ? state[group] : null;
    if (!target || !Object.hasOwn(target, name)) continue;
    if (typeof target[name] === 'string') target[name] = value;
    else if (typeof target[name] === 'number' && /^\d{1,7}$/.test(value)) target[name] = Number(value);
  }
}

const initial = structuredClone(state);

function remember() {
  const out = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (typeof value !== 'object') {
      if (value !== initial[key]) out.set(key, value);
      continue;
    }
    for (const [name, inner] of Object.entries(value)) if (inner !== initial[key][name]) out.set(key + '.' + name, inner);
  }
  const hash = out.toString();
  history.replaceState(null, '', hash ? '#' + hash : location.pathname);
}

// --- asking --------------------------------------------------------------------------------------------------------

async function ask(what, parameters = {}) {
  const query = Object.entries(parameters).filter(([, v]) => v !== '' && v !== null)
                      .map(([k, v]) => encodeURIComponent(k) + '=' + encodeURIComponent(v)).join('&');
  const response = await fetch('/api/v1/' + what + (query ? '?' + query : ''), {cache: 'no-cache'});
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? 'status ' + response.status);
  return answer;
}

const latestAsk = {};
// Of several questions of one kind, only the last one's answer is shown.
async function latest(kind, question, show) {
  const mine = latestAsk[kind] = (latestAsk[kind] ?? 0) + 1;
  const answer = await question;
  if (latestAsk[kind] === mine) show(answer);
}

const {agents, nodes} = state;
const refreshAgents = () => latest('agents', ask('agents', agents), (a) => agentTable.show(a));
const refreshNodes = () => latest('nodes', ask('nodes', nodes), (a) => nodeTable.show(a));
const refreshCurves = () => latest('curves', ask('curves', {task: state.task, application: state.application, range: state.range}), showCurves);
const refreshMap = () => latest('map', ask('map', {task: state.task, model: state.model}), showMap);
const refreshFleet = () => latest('fleet', ask('fleet'), showFleet);

let busy = false, failing = false;
async function refresh() {
  if (busy) return;
  busy = true;
  const done = await Promise.allSettled([refreshFleet(), refreshAgents(), refreshNodes(), refreshCurves(), refreshMap()]);
  busy = false;
  const failed = done.find((d) => d.status === 'rejected');
  say(failed ? failed.reason : null);
}

function say(error) {
  const trouble = byId('trouble');
  failing = Boolean(error);
  trouble.hidden = !failing;
  const text = failing ? `The coordinator does not answer (${error.message}). What is shown is what it last said.` : '';
  if (trouble.textContent !== text) trouble.textContent = text;
  if (failing) setConnection('bad', 'no answer');
  else byId('updated').textContent = 'updated ' + new Date().toLocaleTimeString();
}

function later(question) {
  remember();
  question().catch(say);
}

// --- showing -------------------------------------------------------------------------------------------------------

const count = (n) => Number(n).toLocaleString('en');
const announce = (text) => { byId('announce').textContent = text; };

function setConnection(kind, text) {
  const e = byId('connection');
  if (e.textContent !== text) e.textContent = text;
  e.className = kind;
}

function options(select, first, rows, chosen) {
  const wanted = [['', first], ...rows];
  if (chosen && !rows.some(([value]) => value === chosen)) wanted.push([chosen, chosen]);
  const same = select.options.length === wanted.length && wanted.every(([v, t], i) => select.options[i].value === v && select.options[i].text === t);
  // An open list would close.
  if (!same && document.activeElement !== select)
    select.replaceChildren(...wanted.map(([value, text]) => element('option', {value, textContent: text})));
  if (select.value !== chosen) select.value = chosen;
}

let server = '';
function showFleet(f) {
  server = f.server;
  setConnection(f.connected ? 'good' : 'bad', (f.connected ? 'connected to ' : 'not connected to ') + server);
  byId('node-count').textContent = count(f.nodes);
  byId('node-states').textContent = Object.entries(f.node_states).map(([s, n]) => `${count(n)} ${s}`).join(', ');
  byId('agent-count').textContent = count(f.agents);
  const stages = kStages.map((s) => [s, Object.values(f.tasks).reduce((sum, t) => sum + t[s], 0)]);
  byId('stage-bar').replaceChildren(...stages.filter(([, n]) => n > 0).map(([s, n]) => {
    const part = element('span', {className: s});
    part.style.flexGrow = n;
    return part;
  }));
  const words = stages.filter(([, n]) => n > 0).map(([s, n]) => `${count(n)} ${s}`).join(', ');
  byId('stage-words').textContent = words;
  byId('stage-bar').setAttribute('aria-label', 'Agents by stage: ' + words);
  const gain = f.reward_mean !== null && f.reward_fallback !== null ? f.reward_mean - f.reward_fallback : null;
  byId('gain').textContent = gain === null ? '-' : (gain >= 0 ? '+' : '') + number(gain);
  byId('gain-words').textContent = `agents ${number(f.reward_mean)}, fallback ${number(f.reward_fallback)} per step`;
  byId('record-count').textContent = count(f.records);
  byId('record-words').textContent = `${count(f.duplicates)} came more than once, ${count(f.refused)} refused`;
  const names = f.applications.filter((a) => a.name !== '').map((a) => [a.name, `${a.name} (${a.agents})`]);
  options(byId('application'), 'all', names, state.application);
  options(byId('agents-application'), 'all', names, agents.application);
}

function showCurves(c) {
  rewardChart.show(c);
  stageChart.show(c);
}

function showMap(m) {
  options(byId('model'), 'the most frequent', m.models.filter((v) => v.name !== '').map((v) => [v.name, `${v.name} (${v.agents})`]), state.model);
  const shown = m.points.length < m.agents ? `${count(m.points.length)} of ${count(m.agents)} agents` : `${count(m.agents)} agents`;
  const share = Math.round(100 * (m.explained[0] + m.explained[1]));
  byId('map-words').textContent = m.agents === 0 ? 'Each point is an agent; close together: alike to the meta learner.'
    : `${shown}; close together: alike to the meta learner. The two axes show ${share} % of the variance.`;
  map.show(m, state.colour);
}

function ago(timeUs) {
  if (!timeUs) return '-';
  const s = Math.round(Date.now() / 1000 - timeUs / 1e6);
  if (s < -5) return clock(timeUs / 1e6, 'day');
  return s < 90 ? `${Math.max(0, s)} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago` : s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} d ago`;
}

const gainOf = (row) => row.reward_mean === null || row.reward_fallback === null ? null : row.reward_mean - row.reward_fallback;
const signed = (v) => v === null ? '-' : (v >= 0 ? '+' : '') + number(v);
const gainKind = (row) => { const g = gainOf(row); return g === null ? '' : g >= 0 ? 'good' : 'bad'; };
const rewardColumns = [
  {key: 'reward', title: 'Reward', number: true, text: (r) => number(r.reward_mean)},
  {key: 'fallback', title: 'Fallback', number: true, text: (r) => number(r.reward_fallback)},
  {key: 'gain', title: 'Gain', number: true, text: (r) => signed(gainOf(r)), kind: gainKind},
];

const agentTable = new Table(byId('agents-table'), byId('agents-pager'), 'Agents of the fleet', [
  {key: 'node', title: 'Node', text: (r) => r.node, press: (r) => chooseNode(r.node), hint: 'Show the agents of this node'},
  {key: 'agent', title: 'Target', text: (r) => r.target || r.agent},
  {key: 'application', title: 'Application', text: (r) => r.application || '-'},
  {key: 'task', title: 'Task', text: (r) => r.task},
  {key: 'stage', title: 'Stage', text: (r) => r.stage, stage: true},
  ...rewardColumns,
  {key: 'model', title: 'Model', number: true, sorts: false, text: (r) => r.model_version ? 'v' + r.model_version : '-'},
  {key: 'records', title: 'Episodes', number: true, text: (r) => count(r.records)},
  {key: 'time', title: 'Latest', number: true, text: (r) => ago(r.time_us)},
], agents, () => later(refreshAgents));

const stateKind = (r) => ({alive: 'good', suspect: 'warn', dead: 'bad'})[r.state] ?? '';
const nodeTable = new Table(byId('nodes-table'), byId('nodes-pager'), 'Nodes of the fleet', [
  {key: 'node', title: 'Node', text: (r) => r.node, press: (r) => chooseNode(r.node), hint: 'Show the agents of this node'},
  {key: 'pool', title: 'Pool', text: (r) => r.pool || '-'},
  {key: 'state', title: 'State', text: (r) => r.state, kind: stateKind},
  {key: 'agents', title: 'Agents', number: true, text: (r) => count(r.agents)},
  {key: 'serving', title: 'Serving', number: true, sorts: false, text: (r) => count(r.stages.serving)},
  {...rewardColumns[0]}, {...rewardColumns[1], sorts: false}, {...rewardColumns[2]},
  {key: 'records', title: 'Episodes', number: true, sorts: false, text: (r) => count(r.records)},
  {key: 'lag', title: 'Not covered', number: true, sorts: false, text: (r) => count(r.lag), kind: (r) => r.lag > 0 ? 'warn' : ''},
  {key: 'time', title: 'Latest', number: true, text: (r) => ago(r.time_us)},
], nodes, () => later(refreshNodes));

const rewardChart = new RewardChart(byId('reward-chart'), announce);
const stageChart = new StageChart(byId('stage-chart'), announce);
const map = new EmbeddingMap(byId('map'), byId('map-legend'), announce);

const legendLine = (kind, text) => element('li', {}, element('span', {className: 'line ' + kind}), element('span', {textContent: text}));
byId('reward-legend').append(legendLine('reward', 'agents'), legendLine('fallback', 'their fallbacks'));
byId('stage-legend').append(...kStages.map((s) => element('li', {}, element('span', {className: 'swatch ' + s}), element('span', {textContent: s}))));

// --- choosing ------------------------------------------------------------------------------------------------------

function showNodeChoice() {
  const button = byId('agents-node');
  button.hidden = agents.node === '';
  button.textContent = 'node ' + agents.node + ' \u00d7';
  button.setAttribute('aria-label', 'Show all nodes, not only ' + agents.node);
}

function chooseNode(node) {
  agents.node = node;
  agents.offset = 0;
  showNodeChoice();
  later(refreshAgents);
  byId('agents').scrollIntoView({block: 'nearest'});
}

function choice(id, group, name, question) {
  const control = byId(id);
  control.value = group[name];
  control.addEventListener('change', () => {
    group[name] = control.value;
    if ('offset' in group) group.offset = 0;
    later(question);
  });
}

function search(id, group, question) {
  const control = byId(id);
  let timer = 0;
  control.value = group.q;
  control.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      group.q = control.value;
      group.offset = 0;
      later(question);
    }, kSearchMs);
  });
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  byId('theme').textContent = dark ? 'Light' : 'Dark';
  byId('theme').setAttribute('aria-label', dark ? 'Use light colours' : 'Use dark colours');
  map.draw();
}

function start() {
  restore();
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const chosen = localStorage.getItem('theme');
  setTheme(chosen ? chosen === 'dark' : dark.matches);
  dark.addEventListener('change', () => localStorage.getItem('theme') || setTheme(dark.matches));
  byId('theme').addEventListener('click', () => {
    const now = document.documentElement.dataset.theme !== 'dark';
    localStorage.setItem('theme', now ? 'dark' : 'light');
    setTheme(now);
  });
  options(byId('application'), 'all', [], state.application);
  options(byId('agents-application'), 'all', [], agents.application);
  choice('task', state, 'task', () => {
    state.model = '';  // another task has other models
    return Promise.all([refreshCurves(), refreshMap()]);
  });
  choice('application', state, 'application', refreshCurves);
  choice('range', state, 'range', refreshCurves);
  choice('colour', state, 'colour', refreshMap);
  options(byId('model'), 'the most frequent', [], state.model);
  choice('model', state, 'model', refreshMap);
  choice('agents-stage', agents, 'stage', refreshAgents);
  choice('agents-task', agents, 'task', refreshAgents);
  choice('agents-application', agents, 'application', refreshAgents);
  search('agents-search', agents, refreshAgents);
  search('nodes-search', nodes, refreshNodes);
  showNodeChoice();
  byId('agents-node').addEventListener('click', () => {
    byId('agents-search').focus();
    chooseNode('');
  });
  addEventListener('keydown', (e) => {
    if (e.key !== '/' || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    e.preventDefault();
    byId('agents-search').focus();
  });
  let paused = false;
  byId('pause').addEventListener('click', (e) => {
    paused = !paused;
    e.currentTarget.setAttribute('aria-pressed', String(paused));
    e.currentTarget.textContent = paused ? 'Resume' : 'Pause';
    if (!paused) refresh();
  });
  document.addEventListener('visibilitychange', () => document.hidden || paused || refresh());
  setInterval(() => document.hidden || paused || refresh(), kRefreshMs);
  refresh().then(() => { document.documentElement.dataset.ready = 'true'; });
}

start();
