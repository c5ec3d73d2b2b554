export class Component<Props = any, State = any> {
  constructor(props?: Props);
  props: Props;
  state: State;
  setState(state: Partial<State>, callback?: () => void): void;
  forceUpdate(callback?: () => void): void;
  render(props?: Props, state?: State): any;
}
export function h(type: any, props: any, ...children: any[]): any;
export function render(node: any, parent: Element): void;
export const Fragment: any;
