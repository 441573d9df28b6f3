/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/comm/shm/shm_map.h"
#include "runtime/comm/shm/shm_private.h"

/* The memory that the ranks of a group share. */

int plait_shm_world_init(struct plait_comm *comm, struct plait_shm_world *world)
{
    world->rank = comm->rank;
    if (plait_comm_ready(comm, getrandom(&world->id, sizeof(world->id), 0) ==
                                   sizeof(world->id)) < 0)
        return -1;
    if (plait_comm_host_broadcast(comm, &world->id, sizeof(world->id), 0) < 0)
        return -1;
    return plait_bells_create(comm, world->id, &world->bells);
}

/* Names can be listed by all users of the machine: who has seen one must not
 * know the next, or he could make a file of that name first. */
static void area_name(char name[64], const struct plait_shm_world *world,
                      uint64_t key)
{
    snprintf(name, 64, "/plait-%016" PRIx64 "-%016" PRIx64, world->id, key);
}

/* The names are not needed any more once all ranks have mapped the areas, or
 * one cannot. Where a rank is gone, whoever is left removes its name too. */
static void remove_names(const struct plait_comm *comm,
                         const struct plait_shm_world *world,
                         const struct plait_shm *s, bool lost)
{
    int saved = errno;
    char name[64];

    for (int i = 0; i < comm->size; i++)
        if (lost || i == comm->rank) {
            area_name(name, world, s->keys[i]);
            shm_unlink(name);
        }
    errno = saved;
}

static void areas_close(struct area **area, int n)
{
    for (int i = 0; i < n; i++)
        if (area[i])
            munmap(area[i], sizeof(**area));
    free(area);
}

/* What a rank sends before the first segment of a group. */
struct offer {
    uint64_t key; /* names its area */
    int rank;
    bool crowded;
};

/* Find out who the ranks are, whether all are on one machine, whether any
 * shares its cores, and the names of their areas. */
static int get_together(struct plait_comm *comm, struct plait_shm_world *world,
                        struct plait_shm *s, bool *near)
{
    int ranks;
    struct offer mine = {0, world->rank,
                         plait_bells_crowded(world->bells, &ranks) > 0},
                 *all = calloc((size_t)comm->size, sizeof(*all));

    s->ranks = calloc((size_t)comm->size, sizeof(*s->ranks));
    s->keys = calloc((size_t)comm->size, sizeof(*s->keys));
    if (plait_comm_ready(comm, all && s->ranks && s->keys &&
                                   getrandom(&mine.key, sizeof(mine.key), 0) ==
                                       sizeof(mine.key)) < 0 ||
        plait_comm_host_all_gather(comm, &mine, all, sizeof(mine)) < 0) {
        free(all);
        return -1;
    }
    *near = true;
    for (int i = 0; i < comm->size; i++) {
        s->ranks[i] = all[i].rank;
        s->keys[i] = all[i].key;
        *near &= plait_bells_near(world->bells, all[i].rank);
        s->crowded |= all[i].crowded;
    }
    free(all);
    return 0;
}

/* Map every rank's area. If that fails on one rank, s->area is NULL on all. */
static int open_areas(struct plait_comm *comm,
                      const struct plait_shm_world *world, struct plait_shm *s)
{
    struct area **all = calloc((size_t)comm->size, sizeof(*all));
    double failed;
    char name[64];
    int rc;

    area_name(name, world, s->keys[comm->rank]);
    failed = !all || !(all[comm->rank] =
                           plait_shm_map(name, true, sizeof(struct area)));
    rc = plait_comm_host_all_reduce(comm, &failed, 1, PLAIT_MAX);
    for (int i = 0; rc == 0 && !failed && i < comm->size; i++) {
        area_name(name, world, s->keys[i]);
        if (i != comm->rank)
            failed =
                !(all[i] = plait_shm_map(name, false, sizeof(struct area)));
    }
    if (rc == 0)
        rc = plait_comm_host_all_reduce(comm, &failed, 1, PLAIT_MAX);
    remove_names(comm, world, s, rc < 0);
    if (rc == 0 && failed == 0)
        s->area = all;
    else if (all)
        areas_close(all, comm->size);
    return rc;
}

int plait_shm_create(struct plait_comm *comm, struct plait_shm_world *world,
                     struct plait_shm **shm)
{
    struct plait_shm *s;
    bool near = false;
    int rc;

    *shm = NULL;
    if (!world->bells)
        return 0;
    s = calloc(1, sizeof(*s));
    if (plait_comm_ready(comm, s != NULL) < 0) {
        free(s);
        return -1;
    }
    s->rank = comm->rank;
    s->size = comm->size;
    snprintf(s->name, sizeof(s->name), "%s", comm->name);
    gethostname(s->host, sizeof(s->host) - 1);
    s->bells = world->bells;
    s->least = world->least;
    rc = get_together(comm, world, s, &near);
    if (rc == 0 && near)
        rc = open_areas(comm, world, s);
    if (rc == 0 && s->area)
        *shm = s;
    else
        plait_shm_destroy(s);
    return rc;
}

void plait_shm_destroy(struct plait_shm *shm)
{
    int saved = errno;

    if (!shm)
        return;
    if (shm->area)
        areas_close(shm->area, shm->size);
    free(shm->ranks);
    free(shm->keys);
    free(shm);
    errno = saved;
}
