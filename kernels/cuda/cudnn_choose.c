/* SPDX-License-Identifier: Apache-2.0 */
/* Which of cuDNN's engines computes what was stated. */
#include "config.h"

#ifdef HAVE_CUDNN

#include "kernels/cuda/cudnn.h"

/* How many of cuDNN's engines are tried at most. */
#define ENGINES 16

static desc operation_graph(struct build *b)
{
    const char *what = "operation graph";
    desc d = cudnn_make(b, what, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    cudnn_set(b, what, d, CUDNN_ATTR_OPERATIONGRAPH_OPS,
              CUDNN_TYPE_BACKEND_DESCRIPTOR, b->nops, b->ops);
    if (b->handle != NULL)
        cudnn_set(b, what, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                  CUDNN_TYPE_HANDLE, 1, &b->handle);
    return cudnn_finish(b, what, d);
}

/* Lists cuDNN's engines for the graph, its first choice first; returns how
 * many. */
static int64_t engines(struct build *b, cudnnBackendHeurMode_t mode, desc graph,
                       desc list[ENGINES])
{
    const char *what = "heuristics";
    desc d = cudnn_make(b, what, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t found = 0;

    cudnn_set_desc(b, what, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    cudnn_set(b, what, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
              &mode);
    if (b->device.properties != NULL)
        cudnn_set_desc(b, what, d, b->device.of_heuristics,
                       b->device.properties);
    cudnn_finish(b, what, d);
    for (int i = 0; i < ENGINES; i++)
        list[i] = cudnn_make(b, what, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what,
                    cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             ENGINES, &found, list));
    return b->status == CUDNN_STATUS_SUCCESS ? found : 0;
}

/* Fails if the engine of this configuration has a note that b->notes does not
 * allow. */
static void check_notes(struct build *b, desc config)
{
    const char *what = "numerical notes";
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    desc engine = cudnn_make(b, what, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;

    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what,
                    cudnnBackendGetAttribute(
                        config, CUDNN_ATTR_ENGINECFG_ENGINE,
                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
    n = 0;
    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what,
                    cudnnBackendGetAttribute(
                        engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                        CUDNN_TYPE_NUMERICAL_NOTE,
                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes));
    if (n > CUDNN_NUMERICAL_NOTE_TYPE_COUNT) /* notes of a newer cuDNN */
        cudnn_check(b, what, CUDNN_STATUS_NOT_SUPPORTED);
    for (int64_t i = 0; i < n && b->status == CUDNN_STATUS_SUCCESS; i++)
        if ((unsigned)notes[i] > 31 || !(b->notes >> notes[i] & 1))
            cudnn_check(b, what, CUDNN_STATUS_NOT_SUPPORTED);
}

/* Builds a plan with this engine, if it is able to and allowed. */
static void try_engine(struct build *b, desc engine)
{
    const char *what = "plan";
    desc d;

    if (b->notes != ALL_NOTES)
        check_notes(b, engine);
    d = cudnn_make(b, what, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (b->handle != NULL)
        cudnn_set(b, what, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                  CUDNN_TYPE_HANDLE, 1, &b->handle);
    if (b->device.properties != NULL)
        cudnn_set_desc(b, what, d, b->device.of_plan, b->device.properties);
    cudnn_set_desc(b, what, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    cudnn_finish(b, what, d);
    if (b->status == CUDNN_STATUS_SUCCESS)
        cudnn_check(b, what,
                    cudnnBackendGetAttribute(
                        d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                        CUDNN_TYPE_INT64, 1, NULL, &b->p->workspace));
    if (b->status == CUDNN_STATUS_SUCCESS &&
        b->p->workspace > b->most_workspace)
        cudnn_check(b, "workspace", CUDNN_STATUS_NOT_SUPPORTED);
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->p->plan = d;
}

/* Takes the first engine of the heuristic's list that is able to and allowed;
 * none if stating the graph has failed. */
static void choose(struct build *b, cudnnBackendHeurMode_t mode, desc graph)
{
    desc list[ENGINES];
    int64_t found = engines(b, mode, graph, list);

    if (b->status == CUDNN_STATUS_SUCCESS && found == 0)
        cudnn_check(b, "heuristics", CUDNN_STATUS_NOT_SUPPORTED);
    for (int64_t i = 0; i < found && b->p->plan == NULL; i++) {
        b->status = CUDNN_STATUS_SUCCESS;
        try_engine(b, list[i]);
    }
}

void cudnn_choose(struct build *b)
{
    desc graph = operation_graph(b);

    if (b->status != CUDNN_STATUS_SUCCESS)
        return;
    choose(b, CUDNN_HEUR_MODE_A, graph);
    if (b->p->plan != NULL || !b->fallback)
        return;
    b->status = CUDNN_STATUS_SUCCESS;
    choose(b, CUDNN_HEUR_MODE_FALLBACK, graph);
}

#endif
