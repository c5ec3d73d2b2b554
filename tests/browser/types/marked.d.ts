export function lexer(source: string): any[];
