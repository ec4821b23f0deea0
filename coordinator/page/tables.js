// Tables that are updated in place: what has the focus, or is selected, stays. Names come from nodes: text, never HTML.

export function element(name, properties = {}, ...children) {
  const e = document.createElement(name);
  Object.assign(e, properties);
  e.append(...children);
  return e;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// column: {key, title, text(row), number?, title_of?(row), kind?(row), press?(row), stage?}
function fillCell(td, column, row) {
  const text = column.text(row);
  const kinds = [column.number ? 'number' : '', column.kind ? column.kind(row) : ''].filter(Boolean).join(' ');
  if (td.className !== kinds) td.className = kinds;
  td.title = text;
  if (column.press) {
    let button = td.querySelector('button');
    if (!button) {
      button = element('button', {type: 'button'});
      button.addEventListener('click', () => column.press(td.parentNode.row));
      td.replaceChildren(button);
    }
    setText(button, text);
    button.title = column.hint;
  } else if (column.stage) {
    if (!td.firstElementChild) td.replaceChildren(element('span', {className: 'stage'}), element('span'));
    td.firstElementChild.className = 'stage ' + text;
    setText(td.lastElementChild, text);
  } else {
    setText(td, text);
  }
}

export class Table {
  // state: {sort, offset, limit}; changed() is called after a press.
  constructor(table, pager, caption, columns, state, changed) {
    Object.assign(this, {table, columns, state, changed});
    this.heads = columns.map((c) => this.head(c));
    this.body = element('tbody');
    table.replaceChildren(element('caption', {className: 'unseen', textContent: caption}),
                          element('thead', {}, element('tr', {}, ...this.heads)), this.body);
    this.before = element('button', {type: 'button', textContent: 'Previous'});
    this.next = element('button', {type: 'button', textContent: 'Next'});
    this.where = element('span');
    this.size = element('select', {ariaLabel: 'Rows per page'});
    for (const n of [25, 50, 100, 250]) this.size.append(element('option', {value: n, textContent: n + ' rows'}));
    this.before.addEventListener('click', () => this.go(state.offset - state.limit));
    this.next.addEventListener('click', () => this.go(state.offset + state.limit));
    this.size.addEventListener('change', () => {
      state.limit = Number(this.size.value);
      this.go(0);
    });
    pager.replaceChildren(this.before, this.next, this.where, this.size);
  }

  head(column) {
    const button = element('button', {type: 'button', textContent: column.title});
    button.addEventListener('click', () => {
      const first = column.number ? '-' + column.key : column.key;
      const other = column.number ? column.key : '-' + column.key;
      this.state.sort = this.state.sort === first ? other : first;
      this.go(0);
    });
    return element('th', {scope: 'col', className: column.number ? 'number' : ''}, column.sorts === false ? column.title : button);
  }

  go(offset) {
    this.state.offset = Math.max(0, offset);
    this.changed();
  }

  show(answer) {
    const {sort, limit} = this.state;
    this.columns.forEach((c, i) => {
      const order = sort === c.key ? 'ascending' : sort === '-' + c.key ? 'descending' : 'none';
      this.heads[i].setAttribute('aria-sort', order);
    });
    while (this.body.rows.length > answer.rows.length) this.body.lastElementChild.remove();
    answer.rows.forEach((row, i) => {
      let tr = this.body.rows[i];
      if (!tr) {
        tr = element('tr', {}, ...this.columns.map(() => element('td')));
        this.body.append(tr);
      }
      tr.row = row;
      this.columns.forEach((c, k) => fillCell(tr.cells[k], c, row));
    });
    const last = answer.offset + answer.rows.length;
    setText(this.where, answer.total === 0 ? 'None match' : `${answer.rows.length ? answer.offset + 1 : 0} to ${last} of ${answer.total}`);
    this.before.disabled = answer.offset === 0;
    this.next.disabled = last >= answer.total;
    this.size.value = String(limit);
    // The page went away under us: the last one there is.
    if (answer.rows.length === 0 && answer.total > 0) this.go(Math.floor((answer.total - 1) / limit) * limit);
  }
}
