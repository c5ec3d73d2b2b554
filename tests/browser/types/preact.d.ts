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
export const htm: { bind(h: Function): (strings: TemplateStringsArray, ...values: any[]) => any };
type Cleanup = void | (() => unknown);
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((now: T) => T)) => void];
export function useRef<T>(initial: T): { current: T };
export function useEffect(effect: () => Cleanup, inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => Cleanup, inputs?: unknown[]): void;
