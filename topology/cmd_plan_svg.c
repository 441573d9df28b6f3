/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cmd_plan.h"

/* The placement as a picture: nodes in the order of their NODE_RANK, a box
 * per task, coloured by pipeline stage, with its coordinates; a bar above
 * the nodes for each leaf switch. */

enum {
    BOX_W = 64,
    BOX_H = 34,
    GAP = 10,
    TOP = 64,
    PER_ROW = 16, /* nodes */
    NODES_MOST = 512
};

static const char *const colours[] = {"#8ecae6", "#ffb703", "#90be6d",
                                      "#f28482", "#cdb4db", "#f6bd60",
                                      "#84a59d", "#a2d2ff"};

static void text(FILE *out, int x, int y, int size, const char *what)
{
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" font-size=\"%d\" "
            "text-anchor=\"middle\">",
            x, y, size);
    for (; *what; what++)
        switch (*what) {
        case '<':
            fputs("&lt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*what, out);
        }
    fputs("</text>\n", out);
}

static void draw_task(const struct plan_job *job, FILE *out, int rank, int x,
                      int y)
{
    const struct plait_layout *l = &job->plan->layout;
    struct plait_coord c;
    char line[96];
    size_t used = 0;

    plait_layout_coord(l, rank, &c);
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" "
            "fill=\"%s\" stroke=\"#333\"/>\n",
            x, y, BOX_W, BOX_H, colours[c.at[PLAIT_PP] % 8]);
    snprintf(line, sizeof(line), "%d", rank);
    text(out, x + BOX_W / 2, y + 14, 12, line);
    line[0] = '\0';
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (l->size[i] > 1)
            used +=
                (size_t)snprintf(line + used, sizeof(line) - used, "%s%s%d",
                                 used ? " " : "", plait_axis_names[i], c.at[i]);
    text(out, x + BOX_W / 2, y + 27, 8, line);
}

static int leaf_of(const struct plan_job *job, int position)
{
    return job->fabric ? plait_fabric_leaf(job->fabric,
                                           job->names[job->order[position]])
                       : -1;
}

static void draw_node(const struct plan_job *job, FILE *out, int position,
                      int x, int y)
{
    int node = job->order[position], leaf = leaf_of(job, position);

    if (leaf >= 0) {
        int joined = position % PER_ROW && leaf_of(job, position - 1) == leaf;

        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"14\" "
                "fill=\"#dddddd\"/>\n",
                joined ? x - GAP : x, y - 34, joined ? BOX_W + GAP : BOX_W);
        if (!joined)
            text(out, x + BOX_W / 2, y - 24, 9,
                 plait_fabric_switch_name(job->fabric, leaf));
    }
    text(out, x + BOX_W / 2, y - 6, 11, job->names[node]);
    for (int k = 0; k < job->plan->tasks[node]; k++)
        draw_task(job, out, job->plan->first_rank[node] + k, x,
                  y + k * (BOX_H + 2));
}

void plait_plan_draw(const void *arg, FILE *out)
{
    const struct plan_job *job = arg;
    const struct plait_plan *plan = job->plan;
    int shown = plan->nnodes < NODES_MOST ? plan->nnodes : NODES_MOST;
    int most = 0, rows = (shown + PER_ROW - 1) / PER_ROW, height;
    int columns = shown < PER_ROW ? shown : PER_ROW;
    char title[160];

    for (int i = 0; i < plan->nnodes; i++)
        most = plan->tasks[i] > most ? plan->tasks[i] : most;
    height = TOP + most * (BOX_H + 2);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            GAP + columns * (BOX_W + GAP) + (columns < 6 ? 300 : 0),
            30 + rows * height);
    snprintf(title, sizeof(title),
             "%d ranks on %d nodes: tp %d, cp %d, dp %d, pp %d%s",
             plait_layout_world(&plan->layout), plan->nnodes,
             plan->layout.size[PLAIT_TP], plan->layout.size[PLAIT_CP],
             plan->layout.size[PLAIT_DP], plan->layout.size[PLAIT_PP],
             shown < plan->nnodes ? " (the first 512 nodes)" : "");
    fprintf(out, "<text x=\"%d\" y=\"20\" font-size=\"14\">%s</text>\n", GAP,
            title);
    for (int i = 0; i < shown; i++)
        draw_node(job, out, i, GAP + i % PER_ROW * (BOX_W + GAP),
                  TOP + 10 + i / PER_ROW * height);
    fputs("</svg>\n", out);
}
