/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/cli/cmd_plan.h"
#include "topology/cli/svg.h"

/* The placement as a picture: nodes in the order of their NODE_RANK, a box
 * per task, coloured by pipeline stage, with its coordinates; a frame around
 * each tensor parallel group, and a bar above the nodes for each leaf
 * switch. */

enum {
    BOX_LEAST = 64, /* wide */
    BOX_MOST = 160,
    BOX_H = 34,
    BOX_GAP = 2,   /* between boxes of a group */
    GROUP_GAP = 8, /* more between groups */
    FRAME = 3,     /* around a group */
    GAP = 14,
    TOP = 48,
    LEGEND = 34,
    SWITCH_H = 24, /* the bar of a switch and the space below it */
    WIDTH = 1200,
    TITLE_LEAST = 420, /* the least width that fits a title */
    PER_ROW = 16,      /* nodes at the most */
    NODES_MOST = 64,   /* a page that can still be read, */
    TASKS_MOST = 512,  /* and a file below 200 kB */
    LEVELS_MOST = 3,   /* of switches */
    STAGES = 8,        /* colours */
    RANK_SIZE = 13,
    NAME_SIZE = 12,
    SWITCH_SIZE = 10,
    COORD_SIZE = 9
};

struct picture {
    const struct plan_job *job;
    FILE *out;
    int shown; /* nodes */
    int box_w, per_row;
    int levels; /* of switches that are drawn */
};

/* The sizes of ranks, coordinates and node names are set by the groups that
 * contain them. */
static const char light[] =
    ".t{font-weight:bold;font-size:16px}.weak{font-size:11px}"
    ".frame{fill:#e9edf1;stroke:#b6c2cd}.leaf{fill:#dde3e8}"
    ".spine{fill:#c4ced8}.b{text-anchor:middle}.b text{fill:#10202e}"
    ".p0{fill:#8fc1ea}.p1{fill:#f3c06f}.p2{fill:#9ad3ad}.p3{fill:#f0a29a}"
    ".p4{fill:#c9b3e3}.p5{fill:#e6d98a}.p6{fill:#8fd0cf}.p7{fill:#d7b79b}";
static const char dark[] =
    ".frame{fill:#26323d;stroke:#4a5a69}.leaf{fill:#33414e}"
    ".spine{fill:#4a5a69}";

/* The width of a text, estimated for wide sans-serif letters. */
static int text_width(size_t letters, int size)
{
    return (int)letters * size * 5 / 8;
}

/* Centred in `width`. A name that is too long is cut at its start: names of
 * nodes differ at the end. */
static void print_centred(const struct picture *p, int x, int width, int y,
                          int size, const char *what)
{
    size_t n = strlen(what), most = (size_t)(width * 8 / 5 / size);

    fprintf(p->out,
            "<text x=\"%d\" y=\"%d\" font-size=\"%d\" "
            "text-anchor=\"middle\">%s",
            x + width / 2, y, size, n > most ? "\u2026" : "");
    svg_print_escaped(p->out, n > most ? what + n - most + 1 : what);
    fputs("</text>\n", p->out);
}

/* "tp0 dp1"; the sizes are in the title. Returns its length. */
static size_t coordinates(const struct plait_layout *l, int rank, char *line,
                          size_t size)
{
    struct plait_coord c;
    size_t used = 0;

    line[0] = '\0';
    plait_layout_coord(l, rank, &c);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (l->size[i] > 1)
            used +=
                (size_t)snprintf(line + used, size - used, "%s%s%d",
                                 used ? " " : "", plait_axis_names[i], c.at[i]);
    return used;
}

static void draw_task(const struct picture *p, int rank, const char *name,
                      int x, int y)
{
    const struct plait_layout *l = &p->job->plan->layout;
    struct plait_coord c;
    char line[96];

    plait_layout_coord(l, rank, &c);
    coordinates(l, rank, line, sizeof(line));
    fputs("<g>", p->out);
    svg_print_title(p->out, "rank %d: %s, on %s", rank, line, name);
    fprintf(p->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" "
            "class=\"p%d\"/>\n",
            x, y, p->box_w, BOX_H, c.at[PLAIT_PP] % STAGES);
    print_centred(p, x, p->box_w, y + 27, COORD_SIZE, line);
    snprintf(line, sizeof(line), "%d", rank);
    print_centred(p, x, p->box_w, y + 14, RANK_SIZE, line);
    fputs("</g>\n", p->out);
}

/* The switch so many levels above the node's leaf, or -1. */
static int find_switch(const struct plan_job *job, int position, int level)
{
    int at = plait_fabric_leaf(job->fabric, job->names[job->order[position]]);

    for (; level > 0 && at >= 0; level--)
        at = plait_fabric_parent(job->fabric, at);
    return at;
}

/* One bar over the neighbours from here on that share a switch, drawn with
 * the first of them. */
static void draw_switch(const struct picture *p, int position, int level, int x,
                        int y)
{
    int at = find_switch(p->job, position, level), end = position + 1, width;

    if (at < 0 || (position % p->per_row &&
                   find_switch(p->job, position - 1, level) == at))
        return;
    while (end < p->shown && end % p->per_row &&
           find_switch(p->job, end, level) == at)
        end++;
    width = (end - position) * (p->box_w + GAP) - GAP;
    fputs("<g>", p->out);
    svg_print_title(p->out, "%s: over %d of the nodes in this row",
                    plait_fabric_switch_name(p->job->fabric, at),
                    end - position);
    fprintf(p->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"14\" "
            "rx=\"3\" class=\"%s\"/>\n",
            x, y, width, level ? "spine" : "leaf");
    print_centred(p, x, width, y + 10, SWITCH_SIZE,
                  plait_fabric_switch_name(p->job->fabric, at));
    fputs("</g>\n", p->out);
}

/* Groups are framed where their ranks are neighbours. */
static int frame_size(const struct picture *p)
{
    const struct plait_layout *l = &p->job->plan->layout;

    return l->order[0] == PLAIT_TP ? l->size[PLAIT_TP] : 1;
}

/* How far below the node's first box the k-th is. */
static int task_offset(const struct picture *p, int k)
{
    int tp = frame_size(p);

    return k * (BOX_H + BOX_GAP) + (tp > 1 ? k / tp * GROUP_GAP : 0);
}

static bool begins_group(const struct picture *p, int node, int k)
{
    int tp = frame_size(p);

    return tp > 1 && k % tp == 0 && k + tp <= p->job->plan->tasks[node];
}

static void draw_frame(const struct picture *p, int x, int y)
{
    fprintf(p->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" "
            "class=\"frame\"/>\n",
            x - FRAME, y - FRAME, p->box_w + 2 * FRAME,
            task_offset(p, frame_size(p) - 1) + BOX_H + 2 * FRAME);
}

static void draw_node(const struct picture *p, int position, int x, int y)
{
    const struct plait_plan *plan = p->job->plan;
    int node = p->job->order[position];

    for (int level = p->levels - 1; level >= 0; level--, y += SWITCH_H)
        draw_switch(p, position, level, x, y);
    print_centred(p, x, p->box_w, y + 10, NAME_SIZE, p->job->names[node]);
    fputs("<g class=\"b\">\n", p->out);
    for (int k = 0; k < plan->tasks[node]; k++) {
        if (begins_group(p, node, k))
            draw_frame(p, x, y + 20 + task_offset(p, k));
        draw_task(p, plan->first_rank[node] + k, p->job->names[node], x,
                  y + 20 + task_offset(p, k));
    }
    fputs("</g>\n", p->out);
}

/* As wide as the longest name or coordinate. */
static void choose_box_width(struct picture *p)
{
    const struct plait_plan *plan = p->job->plan;
    int want = BOX_LEAST, w;
    char line[96];

    for (int i = 0; i < p->shown; i++) {
        w = text_width(strlen(p->job->names[p->job->order[i]]), NAME_SIZE) + 4;
        want = w > want ? w : want;
    }
    w = text_width(coordinates(&plan->layout,
                               plait_layout_world(&plan->layout) - 1, line,
                               sizeof(line)),
                   COORD_SIZE) +
        6;
    want = w > want ? w : want;
    p->box_w = want < BOX_MOST ? want : BOX_MOST;
    p->per_row = (WIDTH - GAP) / (p->box_w + GAP);
    if (p->per_row > PER_ROW)
        p->per_row = PER_ROW;
}

static void draw_title(const struct picture *p)
{
    const struct plait_layout *l = &p->job->plan->layout;
    int world = plait_layout_world(l), nodes = p->job->plan->nnodes;
    const char *before = ": ";

    fprintf(p->out,
            "<text x=\"%d\" y=\"30\" class=\"t\">%d rank%s on %d node%s", GAP,
            world, world > 1 ? "s" : "", nodes, nodes > 1 ? "s" : "");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (l->size[i] > 1) {
            fprintf(p->out, "%s%s %d", before, plait_axis_names[i], l->size[i]);
            before = ", ";
        }
    if (p->shown < nodes)
        fprintf(p->out, " (the first %d nodes)", p->shown);
    fputs("</text>\n", p->out);
}

static const char *name_bars(const struct picture *p)
{
    if (p->levels < 1)
        return "";
    if (plait_fabric_has_blocks(p->job->fabric))
        return p->levels > 1 ? "bars: NVLink blocks, above them what joins them"
                             : "bars: NVLink blocks";
    return p->levels > 1 ? "bars: leaf switches, above them the spines"
                         : "bars: leaf switches";
}

/* What colours, frames and bars mean. */
static void draw_legend(const struct picture *p, int y)
{
    const struct plait_layout *l = &p->job->plan->layout;
    int stages = l->size[PLAIT_PP] < STAGES ? l->size[PLAIT_PP] : STAGES;
    int x = GAP;

    for (int i = 0; i < stages && stages > 1; i++, x += 58) {
        fprintf(p->out,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" "
                "rx=\"2\" class=\"p%d\"/>\n",
                x, y, i);
        svg_print_label(p->out, x + 17, y + 10, "weak", "pp %d%s", i,
                        i == STAGES - 1 && l->size[PLAIT_PP] > STAGES ? "..."
                                                                      : "");
    }
    svg_print_label(p->out, x + 6, y + 10, "weak", "%s%s%s",
                    frame_size(p) > 1 ? "framed: a tp group" : "",
                    frame_size(p) > 1 && p->levels > 0 ? "; " : "",
                    name_bars(p));
}

/* How many nodes and how many levels of switches fit. */
static void choose_extent(struct picture *p, int most)
{
    const struct plan_job *job = p->job;
    int nodes = job->plan->nnodes;

    p->shown = most > 0 ? TASKS_MOST / most : NODES_MOST;
    p->shown = p->shown < 1 ? 1 : p->shown;
    p->shown = p->shown < NODES_MOST ? p->shown : NODES_MOST;
    p->shown = p->shown < nodes ? p->shown : nodes;
    p->levels = job->fabric ? plait_fabric_levels(job->fabric) : 0;
    p->levels = p->levels < LEVELS_MOST ? p->levels : LEVELS_MOST;
}

void plait_plan_draw(const void *arg, FILE *out)
{
    const struct plan_job *job = arg;
    const struct plait_plan *plan = job->plan;
    struct picture p = {.job = job, .out = out};
    int most = 0, rows, columns, height, width;

    for (int i = 0; i < plan->nnodes; i++)
        most = plan->tasks[i] > most ? plan->tasks[i] : most;
    choose_extent(&p, most);
    choose_box_width(&p);
    rows = (p.shown + p.per_row - 1) / p.per_row;
    if (rows > 0) /* rows of equal length */
        p.per_row = (p.shown + rows - 1) / rows;
    columns = p.shown < p.per_row ? p.shown : p.per_row;
    height = p.levels * SWITCH_H + 20 + task_offset(&p, most) + GAP;
    width = GAP + columns * (p.box_w + GAP);
    width = width < TITLE_LEAST ? TITLE_LEAST : width;
    svg_print_head(out, width, TOP + rows * height + LEGEND, light, dark);
    draw_title(&p);
    for (int i = 0; i < p.shown; i++)
        draw_node(&p, i, GAP + i % p.per_row * (p.box_w + GAP),
                  TOP + i / p.per_row * height);
    draw_legend(&p, TOP + rows * height + 6);
    fputs("</svg>\n", out);
}
