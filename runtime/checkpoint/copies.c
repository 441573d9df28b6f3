/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/copy_image.h"
#include "runtime/comm/agree.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/tags.h"

/* -- copies of this process ------------------------------------------------ */

struct plait_copies *plait_copies_create(void)
{
    struct plait_copies *c = calloc(1, sizeof(*c));

    if (c)
        c->step = -1;
    return c;
}

struct plait_copy *plait_copies_add(struct plait_copies *c, char *image,
                                    size_t size)
{
    struct plait_copy *copy = image ? calloc(1, sizeof(*copy)) : NULL;

    if (!copy) {
        free(image);
        return NULL;
    }
    copy->image = image;
    copy->size = size;
    copy->next = c->first;
    c->first = copy;
    return copy;
}

/* Only for a copy whose head was checked before. */
static struct plait_copy_head head_of(const struct plait_copy *copy)
{
    struct plait_copy_head head;

    memcpy(&head, copy->image, sizeof(head));
    return head;
}

static void drop_if(struct plait_copies *c,
                    bool (*is)(const struct plait_copies *c,
                               const struct plait_copy *copy, uint64_t epoch),
                    uint64_t epoch)
{
    struct plait_copy **at = &c->first, *copy;

    while ((copy = *at) != NULL) {
        if (!is(c, copy, epoch)) {
            at = &copy->next;
            continue;
        }
        *at = copy->next;
        free(copy->image);
        free(copy);
    }
}

static bool is_any(const struct plait_copies *c, const struct plait_copy *copy,
                   uint64_t epoch)
{
    (void)c;
    (void)copy;
    (void)epoch;
    return true;
}

static bool is_of_another(const struct plait_copies *c,
                          const struct plait_copy *copy, uint64_t epoch)
{
    (void)c;
    return copy->whole && head_of(copy).epoch != epoch;
}

static bool is_not_agreed(const struct plait_copies *c,
                          const struct plait_copy *copy, uint64_t epoch)
{
    struct plait_copy_head head;
    struct plait_error err;

    return !copy->whole ||
           plait_copy_image_check(copy->image, copy->size, &head, &err) < 0 ||
           head.step != c->step || head.epoch != epoch;
}

void plait_copies_destroy(struct plait_copies *c)
{
    if (!c)
        return;
    drop_if(c, is_any, 0);
    free(c);
}

void plait_copies_drop_others(struct plait_copies *c, uint64_t epoch)
{
    drop_if(c, is_of_another, epoch);
    c->step = -1;
}

const struct plait_copy *plait_copies_find(const struct plait_copies *c,
                                           int origin)
{
    for (const struct plait_copy *copy = c->first; copy; copy = copy->next)
        if (copy->whole && head_of(copy).origin == origin)
            return copy;
    return NULL;
}

/* -- copies of all processes ----------------------------------------------- */

/* More copies than a process has, and more ranks than a world has. */
enum { COPIES_MOST = 1 << 12, RANKS_MOST = 1 << 20 };

/* A complete image, and the rank that has it. */
struct entry {
    int64_t step;
    uint64_t epoch, size;
    int32_t origin, ranks, holder; /* ranks 0: nothing */
};

static int newest_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if ((x->ranks == 0) != (y->ranks == 0))
        return x->ranks == 0 ? 1 : -1;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    if (x->epoch != y->epoch)
        return x->epoch > y->epoch ? -1 : 1;
    if (x->origin != y->origin)
        return x->origin - y->origin;
    return x->holder - y->holder;
}

/* The fields of an unused entry, and what lies between those of a used one, are
 * 0. */
static int list_own(const struct plait_copies *c, int rank, struct entry *list)
{
    struct plait_copy_head head;
    struct plait_error err;
    int n = 0;

    for (const struct plait_copy *copy = c->first; copy; copy = copy->next)
        if (copy->whole &&
            plait_copy_image_check(copy->image, copy->size, &head, &err) == 0) {
            if (list)
                list[n] = (struct entry){head.step,   head.epoch, copy->size,
                                         head.origin, head.ranks, rank};
            n++;
        }
    return n;
}

/* list[ranks][room]: what each rank has announced about its images. It is
 * checked before it is used. All ranks make the same check, so they find the
 * same rank wrong. An entry names the rank whose list it is in as the holder of
 * the image. */
static int check_list(struct entry *list, size_t ranks, size_t room,
                      struct plait_error *err)
{
    for (size_t i = 0; i < ranks * room; i++) {
        struct entry *e = &list[i];

        if (e->ranks == 0) {
            memset(e, 0, sizeof(*e));
            continue;
        }
        e->holder = (int32_t)(i / room);
        if (e->ranks < 0 || e->ranks > RANKS_MOST || e->origin < 0 ||
            e->origin >= e->ranks || e->step < 0 ||
            !plait_copy_image_fits(e->size)) {
            errno = EPROTO;
            return plait_errorf(err,
                                "copies in memory: rank %d announced a copy "
                                "that cannot exist",
                                e->holder);
        }
    }
    return 0;
}

/* What all ranks have, the newest first; malloc'ed. */
static int list_all(const struct plait_copies *c, struct plait_comm *all,
                    struct entry **entries, size_t *n, struct plait_error *err)
{
    int rank = plait_comm_rank(all), rc = 0;
    struct entry *mine = NULL, *list = NULL;
    size_t room;

    *entries = NULL;
    if (plait_greatest_count(all, (size_t)list_own(c, rank, NULL), COPIES_MOST,
                             &room, err) < 0)
        return -1;
    *n = room * (size_t)plait_comm_size(all);
    mine = calloc(room + 1, sizeof(*mine));
    list = calloc(*n + 1, sizeof(*list));
    if (!mine || !list)
        rc = plait_errorf(err, "copies in memory: out of memory");
    rc = plait_error_consensus(all, rc, err);
    if (rc == 0)
        list_own(c, rank, mine);
    if (rc == 0 && room > 0 &&
        plait_comm_host_all_gather(all, mine, list, room * sizeof(*mine)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(all));
    if (rc == 0 && room > 0)
        rc = check_list(list, (size_t)plait_comm_size(all), room, err);
    /* The others will ask this rank for what they believe it has announced. */
    if (rc == 0 && room > 0 &&
        memcmp(list + (size_t)rank * room, mine, room * sizeof(*mine)) != 0) {
        errno = EPROTO;
        rc = plait_errorf(err,
                          "copies in memory: the list from rank %d was "
                          "damaged on its way",
                          rank);
    }
    free(mine);
    rc = plait_error_consensus(all, rc, err);
    if (rc < 0) {
        free(list);
        return -1;
    }
    qsort(list, *n, sizeof(*list), newest_first);
    *entries = list;
    return 0;
}

/* Whether the entries from `first` on, all of the same step and world, include
 * every image of that step; *end is behind the last of them. */
static bool is_complete(const struct entry *list, size_t n, size_t first,
                        size_t *end)
{
    const struct entry *e = &list[first];
    int found = 0;
    size_t i;

    for (i = first; i < n && list[i].ranks > 0 && list[i].step == e->step &&
                    list[i].epoch == e->epoch;
         i++)
        if (i == first || list[i].origin != list[i - 1].origin)
            found += list[i].ranks == e->ranks;
    *end = i;
    return found == e->ranks;
}

/* The first rank that has the image sends it to the seat that its origin
 * selects. */
static int move_image(struct plait_copies *c, const struct entry *e,
                      struct plait_comm *all, int to, struct plait_copy *place)
{
    size_t n = e->size / sizeof(int32_t);
    const struct plait_copy *copy = c->first;
    int rank = plait_comm_rank(all);

    if (rank == to)
        return plait_comm_recv(all,
                               &(struct plait_buffers){.recv = place->image,
                                                       .n = n,
                                                       .type = PLAIT_I32},
                               e->holder, PLAIT_TAG_COPY, NULL, NULL);
    if (rank != e->holder)
        return 0;
    /* list_own() has found it here. */
    while (head_of(copy).origin != e->origin || head_of(copy).step != e->step ||
           head_of(copy).epoch != e->epoch || !copy->whole)
        copy = copy->next;
    return plait_comm_send(
        all,
        &(struct plait_buffers){.send = copy->image, .n = n, .type = PLAIT_I32},
        to, PLAIT_TAG_COPY, NULL, NULL);
}

/* entries[n]: the images of one step; the first entry of an origin is the one
 * that is sent. Gives a rank with a seat each image that only ranks without one
 * hold. */
static int seat_images(struct plait_copies *c, const struct entry *entries,
                       size_t n, struct plait_comm *all, int seats,
                       struct plait_error *err)
{
    int rank = plait_comm_rank(all), rc = 0;
    struct plait_copy **places = calloc(n + 1, sizeof(*places));

    if (!places)
        rc = plait_errorf(err, "copies in memory: out of memory");
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (entries[i].holder >= seats && entries[i].origin % seats == rank &&
            (i == 0 || entries[i].origin != entries[i - 1].origin) &&
            !(places[i] = plait_copies_add(c, calloc(1, entries[i].size),
                                           entries[i].size)))
            rc = plait_errorf(err, "copies in memory: out of memory");
    rc = plait_error_consensus(all, rc, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (entries[i].holder < seats ||
            (i > 0 && entries[i].origin == entries[i - 1].origin))
            continue;
        if (move_image(c, &entries[i], all, entries[i].origin % seats,
                       places[i]) < 0)
            rc = plait_errorf(err, "%s", plait_comm_error(all));
        else if (places[i])
            places[i]->whole = true;
    }
    free(places);
    return rc;
}

int plait_copies_agree(struct plait_copies *c, struct plait_comm *all,
                       int seats, struct plait_error *err)
{
    struct entry *list;
    size_t n = 0, first, end = 0;
    int rc;

    c->step = -1;
    if (list_all(c, all, &list, &n, err) < 0)
        return -1;
    for (first = 0; first < n && list[first].ranks > 0; first = end)
        if (is_complete(list, n, first, &end))
            break;
    if (first == n || list[first].ranks == 0) {
        free(list);
        drop_if(c, is_any, 0);
        return 0;
    }
    rc = seat_images(c, list + first, end - first, all, seats, err);
    if (rc == 0) {
        c->step = list[first].step;
        c->epoch = list[first].epoch;
        c->ranks = list[first].ranks;
        drop_if(c, is_not_agreed, c->epoch);
    }
    free(list);
    return rc;
}
