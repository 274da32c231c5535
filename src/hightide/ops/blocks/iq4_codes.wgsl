// The table of IQ4_NL and IQ4_XS: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
#const CODES0 = 0xbfad9881
#const CODES1 = 0xf6eaddcf
#const CODES2 = 0x26190d01
#const CODES3 = 0x71594535
#include "blocks/code_nibbles.wgsl"
