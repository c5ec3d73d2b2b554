// @ts-check
// Long lists. They are fetched page by page, the beginning again when something changed, and of the table only the rows
// in sight are in the page: rows have one height, so a row's place is known without drawing the ones before it.

import { asTrouble, getJson } from "../shared/api.js";
import { Component, html, onKeys, useEffect, useRef, useState } from "../shared/ui.js";

const PAGE = 100;

/**
 * @typedef {{rows: any[], hasMore: boolean, isLoading: boolean, trouble: import("../shared/api.js").Trouble | null,
 *   more: () => void, refresh: () => void}} Pages
 */

/**
 * @param {string} path of the list, with its filters
 * @param {string} field of the answer that holds the rows
 * @returns {Pages}
 */
export function usePages(path, field) {
  const empty = { path, rows: /** @type {any[]} */ ([]), hasMore: true, isLoading: true, isMore: false, trouble: /** @type {any} */ (null) };
  const [, redraw] = useState(0);
  const box = useRef(empty);
  const busy = useRef(/** @type {AbortController | null} */ (null));
  /** What is to be read when the reading that goes on has ended: more comes first, so that a list in unrest grows too. */
  const next = useRef({ isFresh: false, isMore: false });
  if (box.current.path !== path) box.current = empty;

  const fetchPage = async (/** @type {string} */ before, /** @type {(page: any) => any[]} */ joined) => {
    busy.current?.abort();
    const control = (busy.current = new AbortController());
    const query = `limit=${PAGE}${before && `&before=${encodeURIComponent(before)}`}`;
    Object.assign(box.current, { isLoading: true, isMore: before !== "", trouble: null });
    redraw((n) => n + 1);
    try {
      const page = await getJson(`${path}${path.includes("?") ? "&" : "?"}${query}`, control.signal);
      if (control.signal.aborted) return;
      const rows = joined(page[field]);
      const hasTail = !before && rows.length > page[field].length;
      Object.assign(box.current, { rows, ...(!hasTail && { hasMore: page.has_more }) });
    } catch (error) {
      if (control.signal.aborted) return;
      box.current.trouble = asTrouble(error);
    }
    busy.current = null;
    box.current.isLoading = false;
    redraw((n) => n + 1);
    if (next.current.isMore) more();
    else if (next.current.isFresh) refresh();
  };

  /** Read the beginning again; what changes while something is read is read after that. */
  const refresh = () => {
    next.current.isFresh = busy.current !== null;
    if (!busy.current) fetchPage("", (page) => merged(page, box.current.rows));
  };

  const more = () => {
    const { rows, hasMore, isMore } = box.current;
    const isWanted = hasMore && rows.length > 0;
    next.current.isMore = isWanted && busy.current !== null && !isMore;
    if (isWanted && !busy.current) fetchPage(rows[rows.length - 1].id, (page) => [...box.current.rows, ...page]);
  };

  useEffect(() => {
    fetchPage("", (page) => page);
    return () => {
      busy.current?.abort();
      busy.current = null;
    };
  }, [path]);

  return { ...box.current, more, refresh };
}

/**
 * Put a fresh first page before what is known of the rest.
 * @param {any[]} fresh
 * @param {any[]} known
 */
function merged(fresh, known) {
  const ids = new Set(fresh.map((row) => row.id));
  const last = fresh.length > 0 ? known.findIndex((row) => row.id === fresh[fresh.length - 1].id) : -1;
  return [...fresh, ...(last < 0 ? [] : known.slice(last + 1)).filter((row) => !ids.has(row.id))];
}

/** A button for the next page of a list that is not drawn by its rows. @param {{of: Pages, words: string}} props */
export function More({ of, words }) {
  return of.hasMore && of.rows.length > 0 && html`<button type="button" class="box" disabled=${of.isLoading} onClick=${of.more}>${words}</button>`;
}

const BEYOND = 8;
const NEAR_END_ROWS = 40;
const ROW_PX = 52;

/**
 * @typedef {{name: string, title?: string, cell: (row: any) => any, kind?: string}} Column
 * @typedef {{rows: any[], columns: Column[], label: string, href: (row: any) => string, hasMore: boolean,
 *   onMore: () => void, current?: string}} Props
 */

/** @extends {Component<Props>} */
export class Rows extends Component {
  constructor() {
    super();
    this.state = { top: 0, height: 600, row: ROW_PX };
    /** @type {HTMLElement | null} */
    this.box = null;
    this.at = -1;
    this.isMoving = false;
    this.frame = 0;
  }

  componentDidMount() {
    this.measure();
    this.stop = onKeys({
      j: () => this.move(1),
      k: () => this.move(-1),
      ArrowDown: (event) => this.moveInside(event, 1),
      ArrowUp: (event) => this.moveInside(event, -1),
    });
    this.watcher = new ResizeObserver(() => this.measure());
    if (this.box) this.watcher.observe(this.box);
  }

  componentWillUnmount() {
    this.stop?.();
    this.watcher?.disconnect();
    cancelAnimationFrame(this.frame);
  }

  componentDidUpdate() {
    this.measure();
    this.askMore();
    if (!this.isMoving) return;
    this.isMoving = false;
    /** @type {HTMLElement | null | undefined} */
    const link = this.box?.querySelector(`tr[data-at="${this.at}"] a`);
    link?.focus({ preventScroll: true });
  }

  measure() {
    const first = this.box?.querySelector("tr[data-at]");
    const row = first?.getBoundingClientRect().height || this.state.row;
    const height = this.box?.clientHeight ?? this.state.height;
    if (Math.abs(row - this.state.row) > 0.5 || height !== this.state.height) this.setState({ row, height });
  }

  onScroll() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (this.box) this.setState({ top: this.box.scrollTop });
    });
  }

  askMore() {
    const { rows, hasMore, onMore } = this.props;
    const last = ((this.box?.scrollTop ?? 0) + this.state.height) / this.state.row;
    if (hasMore && last > rows.length - NEAR_END_ROWS) onMore();
  }

  /**
   * @param {KeyboardEvent} event
   * @param {number} by
   */
  moveInside(event, by) {
    if (!this.box?.contains(document.activeElement)) return;
    event.preventDefault();
    this.move(by);
  }

  /** Go up or down by some rows, and let the focus follow. @param {number} by */
  move(by) {
    const { rows } = this.props;
    if (rows.length === 0 || !this.box) return;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest("tr[data-at]"));
    const from = focused && this.box.contains(focused) ? Number(focused.dataset.at) : this.at;
    this.at = Math.max(0, Math.min(rows.length - 1, from + by));
    const { row, height } = this.state;
    const head = this.box.querySelector("thead")?.clientHeight ?? 0;
    const place = this.at * row;
    if (place < this.box.scrollTop) this.box.scrollTop = place;
    else if (place + row + head > this.box.scrollTop + height) this.box.scrollTop = place + row + head - height;
    this.isMoving = true;
    this.setState({ top: this.box.scrollTop });
  }

  render() {
    const { rows, columns, label, hasMore } = this.props;
    const { top, height, row } = this.state;
    const first = Math.max(0, Math.floor(top / row) - BEYOND);
    const last = Math.min(rows.length, Math.ceil((top + height) / row) + BEYOND);
    const gap = (/** @type {number} */ count) => count > 0 && html`<tr class="gap" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${count * row}px` }}></td></tr>`;
    return html`<div class="scroller" tabindex="0" role="region" aria-label=${`List of ${label.toLowerCase()}`} onScroll=${() => this.onScroll()}
        ref=${(/** @type {any} */ node) => (this.box = node)}>
      <table class="rows" aria-rowcount=${hasMore ? -1 : rows.length + 1}>
        <thead><tr aria-rowindex="1">${columns.map((column) => html`<th key=${column.name} scope="col" class=${column.kind ?? ""}
          title=${column.title}>${column.name}</th>`)}</tr></thead>
        <tbody>
          ${gap(first)}
          ${rows.slice(first, last).map((each, n) => this.renderRow(each, first + n))}
          ${gap(rows.length - last)}
        </tbody>
      </table>
    </div>`;
  }

  /**
   * @param {any} each
   * @param {number} at
   */
  renderRow(each, at) {
    const { columns, href, current } = this.props;
    return html`<tr key=${each.id} data-at=${at} aria-rowindex=${at + 2} data-current=${each.id === current ? "true" : "false"}>
      ${columns.map((column, n) => html`<td key=${column.name} class=${column.kind ?? ""}>
        ${n === 0 ? html`<a href=${href(each)}>${column.cell(each)}</a>` : column.cell(each)}
      </td>`)}
    </tr>`;
  }
}
