/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank_plugin/agree.h"
#include "spank_plugin/remote.h"
#include "topology/start/meeting.h"

/* srun waits for ten minutes after each node's report, and one that has died is
 * known by its silence: this bounds only what would go on for ever. */
enum { SECONDS_MOST = 24 * 60 * 60 };

/* Where srun listens: at the address from which it launched the step. */
static int find_place(spank_t spank, struct plait_meeting_place *place)
{
    char text[96];

    memset(place, 0, sizeof(*place));
    if (plait_remote_get_env(spank, PLAIT_ENV_AGREE, text, sizeof(text)) < 0 ||
        sscanf(text, "%5d:%64[0-9a-f]", &place->port, place->token) != 2)
        return -1;
    place->quiet = PLAIT_AGREE_QUIET;
    if (plait_remote_get_env(spank, "SLURM_LAUNCH_NODE_IPADDR", place->host,
                             sizeof(place->host)) == 0)
        return 0;
    return plait_remote_get_env(spank, "SLURM_SRUN_COMM_HOST", place->host,
                                sizeof(place->host));
}

int plait_agreement_exists(spank_t spank)
{
    struct plait_meeting_place place;

    return find_place(spank, &place) == 0;
}

enum plait_verdict plait_agreement_join(spank_t spank, const char *why,
                                        const char *note, int *port,
                                        struct plait_error *err)
{
    struct plait_meeting_place place;
    char text[PLAIT_MEETING_SAID], *answer;
    enum plait_verdict verdict = PLAIT_STOP;
    uint32_t node = 0;

    if (find_place(spank, &place) < 0)
        return PLAIT_ALONE;
    spank_get_item(spank, S_JOB_NODEID, &node);
    answer = malloc(PLAIT_MEETING_ANSWER);
    if (!answer) {
        plait_errorf(err, "out of memory");
        return PLAIT_CUT;
    }
    if (why)
        snprintf(text, sizeof(text), "no 0 %s", why);
    else
        snprintf(text, sizeof(text), "%s %d %s", note ? "note" : "ok", *port,
                 note ? note : "");
    if (plait_meeting_join(&place, (int)node, text, SECONDS_MOST, answer, err) <
        0) {
        if (errno != ECONNRESET && errno != ETIME)
            verdict = PLAIT_CUT;
        if (errno == ETIME)
            slurm_info("plait: srun does not answer: %s", err->text);
    } else if (sscanf(answer, "go %5d", port) == 1)
        verdict = PLAIT_GO;
    free(answer);
    return verdict;
}
