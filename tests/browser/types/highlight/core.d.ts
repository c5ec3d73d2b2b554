declare const hljs: any;
export default hljs;
