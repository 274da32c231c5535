export class Template {
  constructor(template: string);
  render(items?: Record<string, unknown>): string;
}
