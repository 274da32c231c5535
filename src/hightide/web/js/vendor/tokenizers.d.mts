export class Tokenizer {
  constructor(tokenizer: object, config: object);
  encode(text: string, options?: { add_special_tokens?: boolean }): { ids: number[] };
  id_to_token(id: number): string | undefined;
}
