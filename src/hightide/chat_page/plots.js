// Small plots of the last two minutes.

const POINTS = 120;

export class Plot {
    constructor(canvas, ceiling = 0) {
        this.canvas = canvas;
        this.ceiling = ceiling; // of the scale; 0: the largest value
        this.lines = [];
    }

    add(...values) {
        values.forEach((value, n) => {
            const line = this.lines[n] ??= [];
            line.push(value);
            if (line.length > POINTS) line.shift();
        });
        this.draw();
    }

    draw() {
        const {canvas} = this;
        const [width, height] = [canvas.clientWidth, canvas.clientHeight];
        const scale = window.devicePixelRatio || 1;
        canvas.width = width * scale;
        canvas.height = height * scale;
        const pen = canvas.getContext("2d");
        pen.scale(scale, scale);
        const top = this.ceiling || Math.max(1, ...this.lines.flat());
        const style = getComputedStyle(canvas);
        this.lines.forEach((line, n) => {
            pen.strokeStyle = style.getPropertyValue(n ? "--quiet" : "--accent");
            pen.lineWidth = 1.5;
            pen.beginPath();
            line.forEach((value, at) => {
                const x = width * (POINTS - line.length + at) / (POINTS - 1);
                pen.lineTo(x, height - 1 - (height - 2) * Math.min(1, value / top));
            });
            pen.stroke();
        });
    }
}
