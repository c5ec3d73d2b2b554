// @ts-check
// Where a question is written: text, and files where the model takes them.

import { Component, html } from "../shared/ui.js";

/** @typedef {{name: string, media_type: string, data: string}} File64 */

const BYTES_MAX = 20_000_000;
const FILES_MAX = 10;
const IMAGE = /^image\/(png|jpeg|gif|webp)$/;
const TEXT = /^(text\/|application\/(json|xml|toml|x-yaml)|image\/svg|$)/;

export class Composer extends Component {
  constructor() {
    super();
    this.state = { files: /** @type {File64[]} */ ([]), note: "" };
    this.refer = (/** @type {any} */ node) => (this.input = node);
  }

  componentDidMount() {
    this.props.refer(this);
  }

  /** Tell why a file can not go along; nothing if it can. @param {File} file */
  refusal(file) {
    const { takes } = this.props;
    const sum = this.state.files.reduce((/** @type {number} */ all, /** @type {File64} */ one) => all + one.data.length * 0.75, file.size);
    if (sum > BYTES_MAX) return `${file.name} is too large: all files together may have ${BYTES_MAX / 1_000_000} MB.`;
    if (this.state.files.length >= FILES_MAX) return `A question has at most ${FILES_MAX} files.`;
    if (IMAGE.test(file.type)) return takes.includes("image") ? "" : "This model takes no pictures.";
    return TEXT.test(file.type) || takes.includes("file") ? "" : "This model takes text files only.";
  }

  /** @param {Iterable<File>} given */
  async add(given) {
    for (const file of given) {
      const note = this.refusal(file);
      const files = note ? this.state.files : [...this.state.files, await encode(file)];
      await new Promise((resolve) => this.setState({ files, note }, () => resolve(null)));
    }
  }

  /** @param {any} event */
  onPaste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length > 0) {
      event.preventDefault();
      this.add(files);
    }
  }

  /** @param {any} event */
  onSubmit(event) {
    event.preventDefault();
    const text = this.input.value.trim();
    const { files } = this.state;
    if ((!text && files.length === 0) || !this.props.canAct) return;
    this.input.value = "";
    this.setState({ files: [], note: "" });
    this.fit();
    this.props.onSend(text, files);
  }

  /** Put what was to be asked back where it was written, before what stands there now. @param {{text: string, files: File64[]}[]} asked */
  takeBack(asked) {
    this.input.value = [...asked.map((one) => one.text), this.input.value].filter(Boolean).join("\n\n");
    this.setState({ files: [...asked.flatMap((one) => one.files), ...this.state.files] });
    this.fit();
  }

  /** Let the field grow with its text. */
  fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  /** The two buttons have keys: patched into the other, a Stop that is being clicked would become a Send. */
  render() {
    const { isBusy, canAct, takes, onStop } = this.props;
    const { files, note } = this.state;
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.onSubmit(event);
    };
    const drop = (/** @type {any} */ event) => {
      event.preventDefault();
      this.add(event.dataTransfer?.files ?? []);
    };
    return html`
      <form class="composer" aria-label="Ask" onSubmit=${(/** @type {any} */ event) => this.onSubmit(event)}
        onDragOver=${(/** @type {any} */ event) => event.preventDefault()} onDrop=${drop}>
        ${note && html`<p class="small bad" role="alert">${note}</p>`}
        ${files.length > 0 && html`<ul class="files" aria-label="To be attached">
          ${files.map((/** @type {File64} */ file, /** @type {number} */ n) => html`<li key=${n}>${file.name}
            <button type="button" class="plain" aria-label=${`Remove ${file.name}`}
              onClick=${() => this.setState({ files: files.filter((/** @type {File64} */ one) => one !== file) })}>×</button></li>`)}
        </ul>`}
        <div class="field">
          <label class="attach" title=${takes.length > 0 ? "Attach files" : "Attach text files"}>
            <span aria-hidden="true">+</span><span class="unseen">Attach files</span>
            <input type="file" multiple disabled=${!canAct} onChange=${(/** @type {any} */ event) => {
              this.add([...event.target.files]);
              event.target.value = "";
            }} />
          </label>
          <label class="unseen" for="question">Your question</label>
          <textarea id="question" rows="1" placeholder=${canAct ? "Ask something" : "You may only look"} disabled=${!canAct}
            autocomplete="off" enterkeyhint="send"
            ref=${this.refer}
            onInput=${() => this.fit()} onKeyDown=${onKey} onPaste=${(/** @type {any} */ event) => this.onPaste(event)}></textarea>
          ${isBusy
            ? html`<button key="stop" type="button" class="stop" onClick=${onStop}>Stop</button>`
            : html`<button key="send" type="submit" class="send" disabled=${!canAct}>Send</button>`}
        </div>
        <p class="small hints"><kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> begins a new line, <kbd>Esc</kbd> stops, <kbd>?</kbd> shows all keys.</p>
      </form>
    `;
  }
}

/**
 * @param {File} file
 * @returns {Promise<File64>}
 */
function encode(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const data = String(reader.result).replace(/^[^,]*,?/, "");
      resolve({ name: file.name || "pasted", media_type: file.type, data });
    };
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
