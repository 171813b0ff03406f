/* Global optimisation by reinforcement: an actor-critic network chooses what the next trial does.
 *
 * Two hidden layers of tanh; the actor's outputs are chances of actions, the critic's output is
 * the value of the state. An action is how much memory's price counts, how wide the windows of
 * copies are, and how many blocks from how far are placed again. Its reward is the share of the
 * simulated time that the trial saves. Training is offline, on random iterations
 * (bench/tier_learn.c). It follows the policy gradient with the critic's value as its baseline,
 * one step after each trial. It is seeded and deterministic. An inference takes microseconds, so
 * plain loops suffice. */
#include "lab/tier/deeptm.h"
#include "lab/tier/deeptm_weights.h"

#include <math.h>
#include <string.h>

#define RATE 0.003f /* of the actor; larger ones forget */
#define CRITIC_RATE 0.01f
#define REWARD_SCALE 300.0 /* trials save about 0.3 % */

/* Each layer is a matrix with a last column of biases. */
enum {
    FIRST = 0,
    SECOND = EBB_LEARN_HIDDEN * (EBB_LEARN_INPUTS + 1),
    ACTOR = SECOND + EBB_LEARN_HIDDEN * (EBB_LEARN_HIDDEN + 1),
    CRITIC = ACTOR + EBB_LEARN_ACTIONS * (EBB_LEARN_HIDDEN + 1),
};

_Static_assert(sizeof ebb__deeptm_weights == EBB_LEARN_WEIGHTS * sizeof(float) &&
                   EBB_DEEPTM_WEIGHTS_VERSION == EBB_LEARN_VERSION,
               "the weights are of this network");

struct ebb_deeptm_action ebb__deeptm_action_of(uint32_t index)
{
    static const struct ebb_deeptm_action actions[EBB_LEARN_ACTIONS] = {
        {0, 1, 8, 48}, {0, 2, 8, 48},    {0, 1, 64, 12},  {0, 4, 64, 12},
        {1, 1, 8, 48}, {0.5, 1, 32, 24}, {0.5, 2, 8, 48}, {0, 1, 2, 96},
    };
    return actions[index < EBB_LEARN_ACTIONS ? index : 0];
}

void ebb__deeptm_learner_load(struct ebb_deeptm_learner *learner)
{
    memcpy(learner->weights, ebb__deeptm_weights, sizeof learner->weights);
    learner->trains = false;
}

void ebb__deeptm_learner_draw(struct ebb_deeptm_learner *learner, uint64_t seed)
{
    uint64_t random = seed | 1;
    for (int i = 0; i < EBB_LEARN_WEIGHTS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        float chance = (float)(random >> 40) * 0x1p-24f;
        learner->weights[i] = (2 * chance - 1) * (i < ACTOR ? 0.3f : 0.05f);
    }
    learner->trains = true;
}

/* out = matrix * (in, 1) */
static void layer(const float *matrix, const float *in, int in_count, float *out, int out_count)
{
    for (int o = 0; o < out_count; o++) {
        const float *row = matrix + o * (in_count + 1);
        out[o] = row[in_count];
        for (int i = 0; i < in_count; i++)
            out[o] += row[i] * in[i];
    }
}

static void bend(float *values, int count)
{
    for (int i = 0; i < count; i++)
        values[i] = tanhf(values[i]);
}

static void forward(struct ebb_deeptm_learner *it)
{
    float most = -1e30f, sum = 0;
    layer(it->weights + FIRST, it->inputs, EBB_LEARN_INPUTS, it->hidden[0], EBB_LEARN_HIDDEN);
    bend(it->hidden[0], EBB_LEARN_HIDDEN);
    layer(it->weights + SECOND, it->hidden[0], EBB_LEARN_HIDDEN, it->hidden[1], EBB_LEARN_HIDDEN);
    bend(it->hidden[1], EBB_LEARN_HIDDEN);
    layer(it->weights + ACTOR, it->hidden[1], EBB_LEARN_HIDDEN, it->chance, EBB_LEARN_ACTIONS);
    layer(it->weights + CRITIC, it->hidden[1], EBB_LEARN_HIDDEN, &it->value, 1);
    for (int a = 0; a < EBB_LEARN_ACTIONS; a++)
        most = it->chance[a] > most ? it->chance[a] : most;
    for (int a = 0; a < EBB_LEARN_ACTIONS; a++)
        sum += it->chance[a] = expf(it->chance[a] - most);
    for (int a = 0; a < EBB_LEARN_ACTIONS; a++)
        it->chance[a] /= sum;
}

struct ebb_deeptm_action ebb__deeptm_learner_act(struct ebb_deeptm_learner *learner,
                                                 const float *inputs, double random)
{
    memcpy(learner->inputs, inputs, sizeof learner->inputs);
    forward(learner);
    uint32_t action = 0;
    for (double left = random; action + 1 < EBB_LEARN_ACTIONS; action++) {
        left -= learner->chance[action];
        if (left < 0)
            break;
    }
    learner->action = action;
    return ebb__deeptm_action_of(action);
}

/* Adds slope * in to a layer's row, and its weights times the slope to `back`. */
static void row_learn(float *row, const float *in, int count, float slope, float *back)
{
    for (int i = 0; i < count; i++) {
        if (back)
            back[i] += row[i] * slope;
        row[i] += slope * in[i];
    }
    row[count] += slope;
}

void ebb__deeptm_learner_reward(struct ebb_deeptm_learner *it, double reward)
{
    float back[2][EBB_LEARN_HIDDEN] = {{0}};
    if (!it->trains)
        return;
    float scaled = (float)fmin(5, reward * REWARD_SCALE), advantage = scaled - it->value;
    for (int a = 0; a < EBB_LEARN_ACTIONS; a++) {
        float slope = RATE * advantage * ((a == (int)it->action ? 1 : 0) - it->chance[a]);
        row_learn(it->weights + ACTOR + a * (EBB_LEARN_HIDDEN + 1), it->hidden[1], EBB_LEARN_HIDDEN,
                  slope, back[1]);
    }
    row_learn(it->weights + CRITIC, it->hidden[1], EBB_LEARN_HIDDEN, CRITIC_RATE * advantage,
              back[1]);
    for (int h = 0; h < EBB_LEARN_HIDDEN; h++) {
        float slope = back[1][h] * (1 - it->hidden[1][h] * it->hidden[1][h]);
        row_learn(it->weights + SECOND + h * (EBB_LEARN_HIDDEN + 1), it->hidden[0],
                  EBB_LEARN_HIDDEN, slope, back[0]);
    }
    for (int h = 0; h < EBB_LEARN_HIDDEN; h++) {
        float slope = back[0][h] * (1 - it->hidden[0][h] * it->hidden[0][h]);
        row_learn(it->weights + FIRST + h * (EBB_LEARN_INPUTS + 1), it->inputs, EBB_LEARN_INPUTS,
                  slope, NULL);
    }
}
