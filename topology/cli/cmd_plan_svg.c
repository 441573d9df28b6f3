/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/cli/plan_picture.h"
#include "topology/cli/svg.h"

/* The placement as a picture: a panel for each switch, within it the nodes
 * below it in the order of their NODE_RANK, a box per task, coloured by
 * pipeline stage, with its coordinates; a frame around each tensor parallel
 * group. Of a plan with too many nodes one stands for all that are alike. */

enum {
    BOX_LEAST = 64, /* wide */
    BOX_MOST = 160,
    BOX_H = 34,
    BOX_GAP = 2,   /* between boxes of a group */
    GROUP_GAP = 8, /* more between groups */
    FRAME = 3,     /* around a group */
    GAP = 14,
    TOP = 48,
    LEGEND_H = 22, /* a row of it */
    PAD = 10,      /* in a panel, around its nodes */
    PANEL_H = 22,  /* its name */
    NAME_H = 20,   /* a node's name, */
    COUNT_H = 14,  /* and how many it stands for */
    WIDTH = 1200,
    TITLE_LEAST = 420, /* the least width that fits a title */
    PER_ROW = 16,      /* nodes at the most */
    STAGES = 8,        /* colours */
    RANK_SIZE = 13,
    NAME_SIZE = 12,
    SWITCH_SIZE = 11,
    COORD_SIZE = 9,
    LEGEND_SIZE = 11
};

struct extent {
    int w, h;
};

struct spot {
    int x, y;
};

/* The sizes of ranks, coordinates and node names are set by the groups that
 * contain them. */
static const char light[] =
    ".t{font-weight:bold;font-size:16px}.weak{font-size:11px}"
    ".frame{fill:#dde4ea;stroke:#b6c2cd}.leaf{fill:#f3f5f7;stroke:#c4ced8}"
    ".spine{fill:#e4e9ee;stroke:#c4ced8}.b{text-anchor:middle}"
    ".b text{fill:#10202e}"
    ".p0{fill:#8fc1ea}.p1{fill:#f3c06f}.p2{fill:#9ad3ad}.p3{fill:#f0a29a}"
    ".p4{fill:#c9b3e3}.p5{fill:#e6d98a}.p6{fill:#8fd0cf}.p7{fill:#d7b79b}";
static const char dark[] =
    ".frame{fill:#33414e;stroke:#4a5a69}.leaf{fill:#1f2933;stroke:#4a5a69}"
    ".spine{fill:#18212a;stroke:#4a5a69}";

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

static int head_height(const struct picture *p)
{
    return NAME_H + (p->condensed ? COUNT_H : 0);
}

static void draw_node(const struct picture *p, int i, struct spot at)
{
    const struct plait_plan *plan = p->job->plan;
    int node = p->shown[i].node, y = at.y + head_height(p);
    const char *name = p->job->names[node];
    char text[32];

    print_centred(p, at.x, p->box_w, at.y + 12, NAME_SIZE, name);
    if (p->shown[i].nodes > 1) {
        snprintf(text, sizeof(text), "and %d more", p->shown[i].nodes - 1);
        print_centred(p, at.x, p->box_w, at.y + 12 + COUNT_H, COORD_SIZE + 1,
                      text);
    }
    fputs("<g class=\"b\">\n", p->out);
    for (int k = 0; k < plan->tasks[node]; k++) {
        if (begins_group(p, node, k))
            draw_frame(p, at.x, y + task_offset(p, k));
        draw_task(p, plan->first_rank[node] + k, name, at.x,
                  y + task_offset(p, k));
    }
    fputs("</g>\n", p->out);
}

/* The end of the run of nodes that are below one switch with the i-th. */
static int run_end(const struct picture *p, int level, int i, int end)
{
    int next = i + 1;

    while (next < end &&
           p->shown[next].under[level] == p->shown[i].under[level])
        next++;
    return next;
}

static struct extent lay_panel(const struct picture *p, int level, int begin,
                               int end, struct spot at, bool draw);

/* Nodes side by side, in rows of equal length. */
static struct extent lay_nodes(const struct picture *p, int begin, int end,
                               int room, struct spot at, bool draw)
{
    int n = end - begin, step = p->box_w + GAP;
    int height = head_height(p) + task_offset(p, p->most - 1) + BOX_H;
    int columns = (room + GAP) / step, rows;

    columns = columns < 1 ? 1 : columns < PER_ROW ? columns : PER_ROW;
    rows = (n + columns - 1) / columns;
    columns = (n + rows - 1) / rows;
    for (int i = 0; i < n && draw; i++)
        draw_node(p, begin + i,
                  (struct spot){at.x + i % columns * step,
                                at.y + i / columns * (height + GAP)});
    return (struct extent){columns * step - GAP, rows * (height + GAP) - GAP};
}

/* What is below a switch of `level`, or on the page: panels, which fill rows,
 * or nodes. */
static struct extent lay_inside(const struct picture *p, int level, int begin,
                                int end, struct spot at, bool draw)
{
    int room = WIDTH - 2 * GAP - 2 * PAD * (p->levels - level);
    struct extent all = {0}, one;
    int x = 0, row = 0, next;

    if (level == 0)
        return lay_nodes(p, begin, end, room, at, draw);
    for (int i = begin; i < end; i = next) {
        next = run_end(p, level - 1, i, end);
        one = lay_panel(p, level - 1, i, next, at, false);
        if (x > 0 && x + one.w > room) {
            all.h += row + GAP;
            x = row = 0;
        }
        if (draw)
            lay_panel(p, level - 1, i, next,
                      (struct spot){at.x + x, at.y + all.h}, true);
        x += one.w + GAP;
        row = one.h > row ? one.h : row;
        all.w = x - GAP > all.w ? x - GAP : all.w;
    }
    all.h += row;
    return all;
}

static void draw_panel(const struct picture *p, int index, int level, int nodes,
                       struct extent size, struct spot at)
{
    const char *name = plait_fabric_switch_name(p->job->fabric, index);
    size_t letters = (size_t)((size.w - 2 * PAD) * 8 / 5 / SWITCH_SIZE);
    char text[256];

    svg_shorten(name, letters, text, sizeof(text));
    fputs("<g>", p->out);
    svg_print_title(p->out, "%s: %d of the nodes", name, nodes);
    fprintf(p->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
            "rx=\"5\" class=\"%s\"/>\n<text x=\"%d\" y=\"%d\" "
            "font-size=\"%d\">",
            at.x, at.y, size.w, size.h, level + p->base ? "spine" : "leaf",
            at.x + PAD, at.y + 15, SWITCH_SIZE);
    svg_print_escaped(p->out, text);
    fputs("</text></g>\n", p->out);
}

/* A switch, drawn once around all that is below it. */
static struct extent lay_panel(const struct picture *p, int level, int begin,
                               int end, struct spot at, bool draw)
{
    int index = plan_picture_switch(p, begin, level), nodes = 0;
    struct extent size;

    if (index < 0)
        return lay_inside(p, level, begin, end, at, draw);
    size = lay_inside(p, level, begin, end, at, false);
    size.w += 2 * PAD;
    size.h += PANEL_H + PAD;
    for (int i = begin; i < end; i++)
        nodes += p->shown[i].nodes;
    if (draw) {
        draw_panel(p, index, level, nodes, size, at);
        lay_inside(p, level, begin, end,
                   (struct spot){at.x + PAD, at.y + PANEL_H}, true);
    }
    return size;
}

/* As wide as the longest name or coordinate. */
static void choose_box_width(struct picture *p)
{
    const struct plait_plan *plan = p->job->plan;
    int want = BOX_LEAST, w;
    char line[96];

    for (int i = 0; i < p->n; i++) {
        w = text_width(strlen(p->job->names[p->shown[i].node]), NAME_SIZE) + 4;
        want = w > want ? w : want;
    }
    w = text_width(coordinates(&plan->layout,
                               plait_layout_world(&plan->layout) - 1, line,
                               sizeof(line)),
                   COORD_SIZE) +
        6;
    want = w > want ? w : want;
    p->box_w = want < BOX_MOST ? want : BOX_MOST;
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
    fputs("</text>\n", p->out);
}

/* What the panels are, where there are any. */
static const char *name_panels(const struct picture *p)
{
    bool blocks = p->levels && plait_fabric_has_blocks(p->job->fabric);

    if (p->levels < 1)
        return "";
    if (p->base)
        return "panels: switches above the leaves";
    if (blocks)
        return p->levels > 1 ? "panels: NVLink blocks, in what joins them"
                             : "panels: NVLink blocks";
    return p->levels > 1 ? "panels: leaf switches, in those above them"
                         : "panels: leaf switches";
}

/* Whether any frame is drawn: a tp group of several nodes has none. */
static bool has_frames(const struct picture *p)
{
    for (int i = 0; i < p->n; i++)
        if (begins_group(p, p->shown[i].node, 0))
            return true;
    return false;
}

/* The colours that are drawn, a bit for each. */
static unsigned list_colours(const struct picture *p)
{
    const struct plait_plan *plan = p->job->plan;
    unsigned found = 0;

    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < plan->tasks[p->shown[i].node]; k++) {
            struct plait_coord c;

            plait_layout_coord(&plan->layout,
                               plan->first_rank[p->shown[i].node] + k, &c);
            found |= 1u << c.at[PLAIT_PP] % STAGES;
        }
    return found;
}

/* Where the next entry of the legend goes. */
struct cursor {
    int x, y, width;
    bool draw;
};

/* The entry's place, in the next row where this one has no room. */
static int take_place(struct cursor *at, int width)
{
    int x = at->x;

    if (x > GAP && x + width > at->width - GAP) {
        x = GAP;
        at->y += LEGEND_H;
    }
    at->x = x + width;
    return x;
}

static void explain(const struct picture *p, struct cursor *at,
                    const char *text)
{
    int width = text_width(strlen(text), LEGEND_SIZE) + 2 * GAP, x;

    if (!*text)
        return;
    x = take_place(at, width);
    if (at->draw)
        svg_print_label(p->out, x, at->y + 10, "weak", "%s", text);
}

/* What colours, frames and panels mean. Returns the height. */
static int draw_legend(const struct picture *p, int y, int width, bool draw)
{
    int stages = p->job->plan->layout.size[PLAIT_PP];
    unsigned colours = stages > 1 ? list_colours(p) : 0;
    struct cursor at = {GAP, y, width, draw};

    for (int i = 0; i < STAGES; i++) {
        int x;

        if (!(colours >> i & 1))
            continue;
        x = take_place(&at, 58);
        if (!draw)
            continue;
        fprintf(p->out,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" "
                "rx=\"2\" class=\"p%d\"/>\n",
                x, at.y, i);
        svg_print_label(p->out, x + 17, at.y + 10, "weak", "pp %d%s", i,
                        stages > STAGES + i ? ".." : "");
    }
    explain(p, &at, has_frames(p) ? "framed: a tp group" : "");
    explain(p, &at, name_panels(p));
    explain(p, &at, p->condensed ? "a node stands for those like it" : "");
    return at.y + LEGEND_H - y;
}

void plait_plan_draw(const void *arg, FILE *out)
{
    const struct plan_job *job = arg;
    struct picture p = {.job = job, .out = out};
    const struct spot top = {GAP, TOP};
    struct extent size;
    int legend;

    plan_picture_choose(&p);
    choose_box_width(&p);
    size = lay_inside(&p, p.levels, 0, p.n, top, false);
    size.w = size.w + 2 * GAP < TITLE_LEAST ? TITLE_LEAST : size.w + 2 * GAP;
    legend = draw_legend(&p, 0, size.w, false);
    svg_print_head(out, size.w, TOP + size.h + GAP + 6 + legend, light, dark);
    draw_title(&p);
    lay_inside(&p, p.levels, 0, p.n, top, true);
    draw_legend(&p, TOP + size.h + GAP + 6, size.w, true);
    fputs("</svg>\n", out);
}
