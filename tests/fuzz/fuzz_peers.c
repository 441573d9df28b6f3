/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "fuzz_comm.h"
#include "runtime/checkpoint/copies.h"
#include "runtime/checkpoint/slice_owners.h"
#include "runtime/checkpoint/sources.h"
#include "runtime/comm/bootstrap/tcp_tree.h"
#include "runtime/comm/members.h"
#include "runtime/optim/whole_plan.h"
#include "runtime/train/watchdog/contacts.h"

/* What ranks tell each other of themselves, as another process of the job could
 * say it, or whoever is let in without a secret: where they can be reached,
 * their nodes, the copies in their memory, the tensors and slices that they
 * have or that their files have, and their matrices. The first byte selects
 * what. */

/* -- where ranks are ------------------------------------------------------- */

static void read_places(const uint8_t *data, size_t size)
{
    enum { MOST = 5 };
    struct plait_tcp_contact all[MOST] = {{.host = ""}};
    struct plait_tcp_place place[MOST];
    bool sound[MOST];

    memcpy(all, data, size < sizeof(all) ? size : sizeof(all));
    for (int i = 0; i < MOST; i++)
        sound[i] = plait_tcp_contact_is_sound(&all[i]);
    if (plait_tcp_places(all, MOST, place) < 0)
        return;
    for (int i = 0; i < MOST; i++) {
        if (all[i].color >= 0 && (place[i].rank < 0 || place[i].size > MOST ||
                                  place[i].rank >= place[i].size))
            __builtin_trap();
        if (sound[i] && strlen(all[i].host) >= sizeof(all[i].host))
            __builtin_trap();
    }
}

static void read_members(struct fuzz_comm *c)
{
    struct plait_launch launch = {.world_size = FUZZ_RANKS};
    struct plait_members *m;
    struct plait_error err;

    strcpy(launch.jobid, "7.0");
    m = plait_members_create(&c->base, &launch, &err);
    for (int i = 0; m && i < m->size; i++)
        if (m->all[i].pid <= 0 || m->all[i].port <= 0 ||
            strlen(m->all[i].host) >= sizeof(m->all[i].host))
            __builtin_trap();
    plait_members_destroy(m);
}

static void read_nodes(struct fuzz_comm *c)
{
    struct plait_hang_contact mine = {.space = 1, .pid = 2, .fd = -1};
    struct plait_heartbeat_address at = {.has4 = 1, .v4 = {10, 0, 0, 1}};
    struct plait_contacts contacts;
    struct plait_error err;

    if (plait_contacts_meet(&contacts, &c->base, &mine, &err) == 0 &&
        plait_contacts_exchange(&contacts, &c->base, &at, NULL, NULL, &err) ==
            0)
        for (int r = 0; r < FUZZ_RANKS; r++)
            if (strlen(plait_contacts_host(&contacts, r)) >=
                sizeof(contacts.node->host))
                __builtin_trap();
    plait_contacts_clear(&contacts);
}

/* -- what they have -------------------------------------------------------- */

static void read_copies(struct fuzz_comm *c)
{
    struct plait_copies *copies = plait_copies_create();
    struct plait_sources s = {.path = NULL};
    struct plait_error err;

    if (copies && plait_copies_agree(copies, &c->base, 2, &err) == 0 &&
        copies->step >= 0) {
        plait_sources_open_copies(&s, copies, &c->base, &err);
        plait_sources_close(&s);
    }
    plait_copies_destroy(copies);
}

/* Each tensor that a rank has been told of lies in a file that has some
 * bytes, here. */
static void read_sources(struct fuzz_comm *c)
{
    enum { BYTES = 64, SOME = 64 }; /* each is compared with all */
    struct plait_sources s = {.path = "files"};
    struct plait_shard_file file[2] = {{.bytes = BYTES}, {.bytes = BYTES}};
    struct plait_error err;

    s.manifest.nfiles = 2;
    s.manifest.files = calloc(2, sizeof(*file));
    s.files = calloc(2, sizeof(*s.files));
    if (s.manifest.files && s.files) {
        memcpy(s.manifest.files, file, sizeof(file));
        if (plait_sources_share(&s, &c->base, &err) == 0)
            for (int i = 0; i < s.nsources && s.nsources < SOME; i++) {
                struct plait_tensor_slice whole = s.sources[i].slice;
                float *to = NULL;
                char bytes[BYTES] = "";

                s.files[s.sources[i].file].map = bytes;
                if (whole.count <= BYTES / sizeof(float))
                    to = calloc(whole.count + 1, sizeof(*to));
                if (to)
                    plait_sources_fill(&s, &whole, to, &err);
                free(to);
                s.files[s.sources[i].file].map = NULL;
            }
    }
    plait_sources_close(&s);
}

static void read_owners(struct fuzz_comm *c)
{
    const uint64_t mine[2] = {5, 6};
    struct plait_slice_owners owners;
    struct plait_error err;
    int ranks[FUZZ_RANKS];

    if (plait_slice_owners_gather(&owners, &c->base, mine, 2, &err) == 0)
        for (int i = 0; i < 2; i++)
            if (plait_slice_owners_find(&owners, mine[i], ranks) > FUZZ_RANKS)
                __builtin_trap();
    plait_slice_owners_clear(&owners);
}

/* A rank without matrices, as others say that they have some. */
static void read_plan(struct fuzz_comm *c)
{
    struct plait_whole_plan plan;
    struct plait_error err;

    if (plait_whole_plan_make(&plan, &c->base, NULL, 0, &err) < 0)
        return;
    if (plan.nowned || plan.nshares)
        __builtin_trap();
    plait_whole_plan_clear(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_comm c;

    if (size == 0)
        return 0;
    fuzz_comm_init(&c, data + 1, size - 1);
    if (data[0] == 'p')
        read_places(data + 1, size - 1);
    else if (data[0] == 'm')
        read_members(&c);
    else if (data[0] == 'n')
        read_nodes(&c);
    else if (data[0] == 'c')
        read_copies(&c);
    else if (data[0] == 'o')
        read_owners(&c);
    else if (data[0] == 'w')
        read_plan(&c);
    else
        read_sources(&c);
    return 0;
}
