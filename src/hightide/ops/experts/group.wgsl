// work = the rows in the order of their experts, cut into tiles of at most tile_rows that have one expert:
// [number of tiles][expert, first, end of each of most_tiles][rows in order].
// One workgroup: it counts the rows of each of COUNT experts, a lane lists the tiles of an expert, and every row goes to the
// next place of its expert. Which of those it gets is left open: a row of a product does not depend on its neighbours.
#params rows: u32, tile_rows: u32, most_tiles: u32
#read chosen: i32
#write work: i32

const LANES = ${LANES}u;
const COUNT = ${COUNT}u;
var<workgroup> counts: array<atomic<u32>, COUNT>;
var<workgroup> places: array<atomic<u32>, COUNT>;

fn expert_of(row: u32) -> u32 { return u32(clamp(chosen[row], 0, i32(COUNT) - 1)); }

#main LANES
    if (group_number(group, groups) > 0u || params.rows == 0u) { return; }
    for (var e = lane; e < COUNT; e += LANES) { atomicStore(&counts[e], 0u); }
    workgroupBarrier();
    for (var row = lane; row < params.rows; row += LANES) { atomicAdd(&counts[expert_of(row)], 1u); }
    workgroupBarrier();
    for (var e = lane; e < COUNT; e += LANES) {
        var first = 0u;
        var tile = 0u;
        for (var before = 0u; before < e; before++) {
            let rows = atomicLoad(&counts[before]);
            first += rows;
            tile += (rows + params.tile_rows - 1u) / params.tile_rows;
        }
        atomicStore(&places[e], first);
        let end = first + atomicLoad(&counts[e]);
        for (var row = first; row < end; row += params.tile_rows) {
            work[1u + tile * 3u] = i32(e);
            work[2u + tile * 3u] = i32(row);
            work[3u + tile * 3u] = i32(min(row + params.tile_rows, end));
            tile++;
        }
        if (e == COUNT - 1u) { work[0] = i32(tile); }
    }
    workgroupBarrier();
    for (var row = lane; row < params.rows; row += LANES) {
        let place = atomicAdd(&places[expert_of(row)], 1u);
        work[1u + params.most_tiles * 3u + place] = i32(row);
    }
}
