from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset


class Transition(NamedTuple):
    seen: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    after: torch.Tensor
    done: torch.Tensor


class Replay:
    def __init__(self, room, width):
        self.seen, self.after = np.zeros((room, width), np.float32), np.zeros((room, width), np.float32)
        self.action, self.reward = np.zeros(room, np.int64), np.zeros(room, np.float32)
        self.done = np.zeros(room, np.bool_)
        self.at, self.filled, self.room = 0, 0, room

    def put(self, seen, action, reward, after, done):
        rows = (self.at + np.arange(len(seen))) % self.room
        self.seen[rows], self.action[rows], self.reward[rows] = seen, action, reward
        self.after[rows], self.done[rows] = after, done
        self.at = int(rows[-1] + 1) % self.room
        self.filled = min(self.filled + len(seen), self.room)

    def __len__(self):
        return self.filled


class Draws(IterableDataset):
    """Endless batches of a memory that grows meanwhile; one thread of the device loader runs it."""

    def __init__(self, replay, size, seed):
        self.replay, self.size, self.seed = replay, size, seed

    def __iter__(self):
        numbers = np.random.default_rng(self.seed)
        while True:
            rows = numbers.integers(len(self.replay), size=self.size)
            m = self.replay
            yield Transition(*(torch.from_numpy(part[rows]) for part in (m.seen, m.action, m.reward, m.after, m.done)))
