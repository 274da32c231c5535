
/**
 * The value of a number that follows the inputs.
 * @param {Formula} formula
 * @param {ReadElement} read
 * @returns {number}
 */
export function evaluate(formula, read) {
  if (typeof formula === "number") return formula;
  const [kind, ...parts] = formula;
  if (kind === "in") return read(parts[0], parts[1]);
  const numbers = parts.map((part) => evaluate(part, read));
  if (kind === "+") return numbers.reduce((sum, number) => sum + number);
  if (kind === "*") return numbers.reduce((product, number) => product * number);
  return Math.floor(numbers[0] / numbers[1]);
}
