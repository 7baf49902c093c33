"""Quantile DQN for the grid operator's game, one chip.  python play.py lr=1e-4 seed=3"""
import sys
from itertools import islice
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

from learner import Learner, LearningFigures, QuantileNet
from replay import Draws, Replay

DEFAULTS = dict(env="Acrobot-v1", seed=1, envs=16, room=400_000, batch=512, quantiles=51, gamma=0.99, lr=2.5e-4, learn_from=10_000, turns=60_000,
                refresh=250, target_every=2_000, report_every=1_000, save_every=10_000, epsilon_turns=15_000, out="runs/grid", resume="")


def settings(words):
    values = dict(DEFAULTS)
    for word in words:
        key, _, text = word.partition("=")
        values[key] = type(DEFAULTS[key])(text)
    return SimpleNamespace(**values)


class Player:
    """Plays on the host with a copy of the net, which is refreshed now and then."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.envs = gym.make_vec(cfg.env, num_envs=cfg.envs, vectorization_mode="sync")
        self.numbers = np.random.default_rng(cfg.seed)
        self.seen, _ = self.envs.reset(seed=cfg.seed)
        self.net = QuantileNet(self.width, self.actions, cfg.quantiles)
        self.running, self.finished = np.zeros(cfg.envs), []

    @property
    def width(self):
        return int(np.prod(self.envs.single_observation_space.shape))

    @property
    def actions(self):
        return int(self.envs.single_action_space.n)

    def choose(self, epsilon):
        with torch.no_grad():
            best = self.net(torch.from_numpy(self.seen).float()).mean(-1).argmax(-1).numpy()
        stray = self.numbers.random(len(best)) < epsilon
        best[stray] = self.numbers.integers(self.actions, size=int(stray.sum()))
        return best

    def turn(self, replay, epsilon):
        action = self.choose(epsilon)
        after, reward, ended, cut, _ = self.envs.step(action)
        replay.put(self.seen, action, reward, after, ended)
        self.running += reward
        for i in np.flatnonzero(ended | cut):
            self.finished.append(self.running[i])
            self.running[i] = 0.0
        self.seen = after


def main(cfg):
    player = Player(cfg)
    replay = Replay(cfg.room, player.width)
    learner, figures = Learner(cfg, player.width, player.actions), LearningFigures()
    player.net.load_state_dict(learner.weights())
    while len(replay) < cfg.learn_from:
        player.turn(replay, epsilon=1.0)

    draws = DataLoader(Draws(replay, cfg.batch, cfg.seed + 1), batch_size=None)
    board = SummaryWriter(cfg.out)
    batches = islice(pl.MpDeviceLoader(draws, learner.device), cfg.turns)
    for turn, batch in enumerate(batches, 1):
        player.turn(replay, epsilon=max(0.02, 1.0 - turn / cfg.epsilon_turns))
        told = learner.step(batch)
        figures.update(told)
        if turn % cfg.target_every == 0:
            learner.follow()
        if turn % 200 == 0:
            board.add_scalar("train/loss", told["loss"], turn)
        if turn % cfg.refresh == 0:
            torch_xla.sync()
            player.net.load_state_dict(learner.weights())
        if turn % cfg.report_every == 0:
            torch_xla.sync()
            for name, number in figures.compute().items():
                board.add_scalar(f"window/{name}", number, turn)
            if player.finished:
                board.add_scalar("return", np.mean(player.finished[-100:]), turn)
                print(f"{turn}: return {np.mean(player.finished[-100:]):.1f}, {len(replay)} transitions")
        if turn % cfg.save_every == 0:
            learner.save(f"{cfg.out}/grid.pt")
    board.close()


if __name__ == "__main__":
    main(settings(sys.argv[1:]))
