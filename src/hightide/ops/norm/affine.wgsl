    // Within a kernel: value * weight[c] + bias[c], as far as there are any.
    #if WEIGHT
    value *= load_weight(c);
    #end
    #if BIAS
    value += load_bias(c);
    #end
