/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of ranks' state in memory: which rank keeps whose, what is accepted as
 * a copy, and which step the remaining ranks agree on. */
#include "config.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/copier.h"
#include "runtime/checkpoint/copy_image.h"
#include "runtime/comm/backend.h"
#include "runtime/comm/members.h"
#include "socket_launch.h"
#include "tap.h"

/* -- partners ---------------------------------------------------------------
 */

static const struct pairs {
    const char *what;
    int tp, dp, pp, nodes; /* the ranks fill node after node */
    bool replica;          /* the partner is in another replica */
    bool away;             /* and on another node */
} pairs[] = {
    {"dp 4 on a node", 1, 4, 1, 1, true, false},
    {"tp 2 dp 2 on a node", 2, 2, 1, 1, true, false},
    {"tp 2 pp 2 on a node", 2, 1, 2, 1, false, false},
    {"dp 4 on two nodes", 1, 4, 1, 2, true, true},
    {"tp 2 dp 4 on two nodes", 2, 4, 1, 2, true, true},
    {"tp 2 dp 2 pp 2, a stage to a node", 2, 2, 2, 2, false, true},
    {"tp 8 on two nodes", 8, 1, 1, 2, false, true},
    {"one rank", 1, 1, 1, 1, false, false},
};

static void test_partners(const struct pairs *p)
{
    struct plait_layout layout;
    int world = p->tp * p->dp * p->pp, bad = 0, to, from, back, none;
    uint64_t node[16];

    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = p->tp;
    layout.size[PLAIT_DP] = p->dp;
    layout.size[PLAIT_PP] = p->pp;
    for (int r = 0; r < world; r++)
        node[r] = (uint64_t)(r * p->nodes / world);
    for (int r = 0; r < world; r++) {
        struct plait_coord a, b;

        plait_copy_partners(&layout, node, r, &to, &from);
        plait_copy_partners(&layout, node, to, &none, &back);
        plait_layout_coord(&layout, r, &a);
        plait_layout_coord(&layout, to, &b);
        bad += back != r || (world > 1 && to == r);
        bad += p->replica && a.at[PLAIT_DP] == b.at[PLAIT_DP];
        bad += p->replica && a.at[PLAIT_TP] != b.at[PLAIT_TP];
        bad += p->away && node[r] == node[to];
    }
    ok(!bad, "partners: %s", p->what);
}

/* -- images -----------------------------------------------------------------
 */

/* An image without slices, only `bytes` of data. */
static char *make_image(uint64_t epoch, int64_t step, int origin, int ranks,
                        size_t bytes, size_t *size)
{
    const struct plait_rank_shard none = {.bytes = bytes};
    char *image = plait_copy_image_create(&none, size);
    struct plait_copy_head head;
    struct plait_error err;

    memset(&head, 0, sizeof(head));
    head.epoch = epoch;
    head.step = head.info.step = step;
    head.origin = origin;
    head.ranks = ranks;
    if (!image || plait_copy_image_fill(image, &none, &head, &err) < 0)
        exit(1);
    memset(image + *size - bytes, origin + 1, bytes);
    return image;
}

static void test_image(void)
{
    struct plait_copy_head head, of;
    struct plait_error err = {""};
    size_t size;
    char *image = make_image(7, 40, 1, 4, 64, &size);
    int taken = 0;

    ok(size % 4 == 0 && plait_copy_image_check(image, size, &of, &err) == 0 &&
           of.epoch == 7 && of.step == 40 && of.origin == 1 && of.ranks == 4,
       "an image is one %s", err.text);
    for (size_t n = 0; n < size; n++)
        taken += plait_copy_image_check(image, n, &head, &err) == 0;
    ok(taken == 0, "none of its beginnings is");
    for (size_t i = 0; i < PLAIT_COPY_HEAD + of.table; i++) {
        if (i >= sizeof(head) && i < PLAIT_COPY_HEAD)
            continue;
        image[i] = (char)(image[i] ^ 0x10);
        taken += plait_copy_image_check(image, size, &head, &err) == 0;
        image[i] = (char)(image[i] ^ 0x10);
    }
    ok(taken == 0, "nor one with another bit in its head or table");
    free(image);
}

/* -- copies that remain ---------------------------------------------------- */

enum { RANKS = 4, DATA = 4096 };

struct held {
    int holder, origin;
    int64_t step;
    uint64_t epoch;
};

static const struct scene {
    const char *what;
    int seats, images;
    int64_t want;
    struct held held[16]; /* `images` of them */
} scenes[] = {
    {"nobody has any", 4, 0, -1, {{0}}},
    {"all of a step",
     4,
     4,
     10,
     {{0, 0, 10, 1}, {1, 1, 10, 1}, {2, 2, 10, 1}, {3, 3, 10, 1}}},
    {"the newest that is complete",
     4,
     7,
     10,
     {{0, 0, 10, 1},
      {1, 1, 10, 1},
      {2, 2, 10, 1},
      {3, 3, 10, 1},
      {0, 0, 20, 1},
      {1, 1, 20, 1},
      {2, 2, 20, 1}}},
    {"one rank's by its partner",
     4,
     5,
     20,
     {{0, 0, 20, 1},
      {1, 1, 20, 1},
      {2, 2, 20, 1},
      {0, 3, 20, 1},
      {0, 0, 10, 1}}},
    {"two worlds are not mixed",
     4,
     4,
     -1,
     {{0, 0, 20, 1}, {1, 1, 20, 1}, {2, 2, 20, 2}, {3, 3, 20, 2}}},
    {"what those without a seat have is given on",
     2,
     4,
     30,
     {{0, 0, 30, 5}, {2, 1, 30, 5}, {3, 2, 30, 5}, {3, 3, 30, 5}}},
};

/* Returns 0 if the scene's result is as expected on this rank. */
static int run_rank(const struct plait_launch *launch,
                    const struct scene *scene)
{
    struct plait_error err;
    struct plait_comm *star = plait_tcp_create(launch, 60, &err);
    struct plait_members *m =
        star ? plait_members_create(star, launch, &err) : NULL;
    struct plait_comm *all =
        m ? plait_members_world(m, plait_ops_cpu(), NULL, 60, &err) : NULL;
    struct plait_copies *c = plait_copies_create();
    double found[RANKS] = {0};
    int bad = !all || !c;

    plait_comm_destroy(star);
    for (int i = 0; !bad && i < scene->images; i++) {
        const struct held *h = &scene->held[i];
        size_t size;
        char *image;

        if (h->holder != launch->rank)
            continue;
        image = make_image(h->epoch, h->step, h->origin, RANKS, DATA, &size);
        plait_copies_add(c, image, size)->whole = true;
    }
    bad = bad || plait_copies_agree(c, all, scene->seats, &err) < 0 ||
          c->step != scene->want;
    for (int i = 0; !bad && i < RANKS; i++) {
        const struct plait_copy *copy = plait_copies_find(c, i);

        if (copy && launch->rank < scene->seats)
            found[i] = copy->image[copy->size - 1] == i + 1;
    }
    bad = bad || plait_comm_host_all_reduce(all, found, RANKS, PLAIT_MAX) < 0;
    for (int i = 0; !bad && i < RANKS; i++)
        bad = found[i] != (scene->want >= 0);
    plait_copies_destroy(c);
    plait_comm_destroy(all);
    plait_members_destroy(m);
    return bad;
}

static void test_scene(const struct scene *scene)
{
    struct plait_launch launch = launch_of(0, RANKS);
    int bad = 0, status;

    fflush(stdout);
    for (launch.rank = 0; launch.rank < RANKS; launch.rank++)
        if (fork() == 0)
            _exit(run_rank(&launch, scene));
    while (wait(&status) > 0)
        bad += status != 0;
    ok(!bad, "%s", scene->what);
}

int main(void)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        test_partners(&pairs[i]);
    test_image();
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
        test_scene(&scenes[i]);
    return done_testing();
}
