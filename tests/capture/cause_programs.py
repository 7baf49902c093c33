"""Programs whose graphs are new for one known reason each, for the tests with real torch_xla."""

#: One device. Each function is one reason; ``# line NAME`` marks where it comes from.
REASONS = """\
import torch
import torch_xla

device = torch_xla.device()
STEPS = 7


def model_and_optimizer():
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    model = model.to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def learn(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def last_batch():
    model, optimizer = model_and_optimizer()
    for step in range(STEPS):
        x = torch.randn(3 if step == STEPS - 1 else 8, 6).to(device)  # line LAST_BATCH_MADE
        learn(model, optimizer, model(x).pow(2).mean())
        torch_xla.sync()  # line LAST_BATCH


def sequence_length():
    table = torch.nn.Embedding(20, 6).to(device)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for length in (9, 9, 9, 9, 12, 11):
        ids = torch.randint(20, (4, length)).to(device)
        learn(table, optimizer, table(ids).tanh().mean())
        torch_xla.sync()  # line SEQUENCE


def growing_slice():
    x = torch.randn(8, 12).to(device)
    w = torch.ones(12, requires_grad=True, device=device)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for step in range(STEPS):
        past = x[:, : step + 1]  # line SLICE_MADE
        learn(None, optimizer, past.sum() * w.sum())
        torch_xla.sync()  # line SLICE


def growing_arange():
    w = torch.ones(3, requires_grad=True, device=device)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for step in range(STEPS):
        places = torch.arange(step + 2, device=device)  # line ARANGE_MADE
        learn(None, optimizer, places.float().cos().sum() * w.sum())
        torch_xla.sync()  # line ARANGE


def special_number():
    x = torch.randn(4, 6).to(device)
    w = torch.ones(6, requires_grad=True, device=device)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for scale in (0.25, 0.5, 0.75, 0.8, 0.9, 1.0):
        loss = (x * w).sum() * scale  # line NUMBER_MADE
        learn(None, optimizer, loss)
        torch_xla.sync()  # line NUMBER


def boolean_mask():
    model, optimizer = model_and_optimizer()
    x = torch.randn(8, 6).to(device)
    for step in range(STEPS):
        keep = (torch.arange(8) < (4 if step < 5 else 6)).to(device)
        loss = model(x)[keep].pow(2).mean()  # line MASK_MADE
        learn(model, optimizer, loss)
        torch_xla.sync()  # line MASK


def kept_loss():
    w = torch.randn(6, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=1e-4)
    total = 0.0
    for step in range(STEPS):
        total = total + (w * 0.5).tanh().sum()  # line KEPT_MADE
        optimizer.zero_grad()
        total.backward(retain_graph=True)
        optimizer.step()
        torch_xla.sync()  # line KEPT


def train_and_eval():
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Dropout(0.5)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 6).to(device)
    for epoch in range(3):
        model.train()
        for step in range(4):
            learn(model, optimizer, model(x).sum())
            torch_xla.sync()  # line TRAIN
        model.eval()
        with torch.no_grad():
            for step in range(4):
                result = model(x).sum()
                torch_xla.sync()  # line EVAL


def split_by_item():
    model, optimizer = model_and_optimizer()
    x = torch.randn(8, 6).to(device)
    for step in range(STEPS):
        scale = model(x).exp().sum()
        if step >= 5:
            scale.item()  # line SPLIT_READ
        learn(model, optimizer, scale * scale)
        torch_xla.sync()  # line SPLIT


def print_sometimes():
    model, optimizer = model_and_optimizer()
    x = torch.randn(8, 6).to(device)
    for step in range(10):
        loss = model(x).abs().mean()
        if step % 5 == 4:
            print(f"step {step} loss {loss:.3f}")  # line PRINT
        learn(model, optimizer, loss * loss)
        torch_xla.sync()  # line PRINT_STEP


def kept_tensor():
    model, optimizer = model_and_optimizer()
    x = torch.randn(8, 6).to(device)
    for step in range(STEPS):
        out = model(x).sin()  # line LIVE_MADE
        learn(model, optimizer, out.mean())
        kept = out if step == 5 else None
        out = None
        torch_xla.sync()  # line LIVE


def other_type():
    w = torch.ones(6, requires_grad=True, device=device)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for step in range(STEPS):
        x = torch.ones(4, 6, dtype=torch.float16 if step == 5 else torch.float32).to(device)
        learn(None, optimizer, (x.cos() * w).sum())
        torch_xla.sync()  # line TYPE


def new_branch():
    model, optimizer = model_and_optimizer()
    x = torch.randn(8, 6).to(device)
    for step in range(STEPS):
        out = model(x)
        if step >= 5:
            out = out.sigmoid()  # line BRANCH_MADE
        learn(model, optimizer, out.mean())
        torch_xla.sync()  # line BRANCH


for reason in (
    last_batch, sequence_length, growing_slice, growing_arange, special_number, boolean_mask,
    kept_loss, train_and_eval, split_by_item, print_sometimes, kept_tensor, other_type, new_branch,
):
    torch.manual_seed(0)
    reason()
"""

#: Two cores whose last steps differ, without a collective that would stop the run.
UNLIKE = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def train(index):
    device = torch_xla.device()
    w = torch.ones(6, requires_grad=True, device=device)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for step in range(7):
        loss = (w * 2.5).sum()
        if step >= 5 and index == 1:
            loss = loss.sin()  # line ODD
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()  # line STEP


if __name__ == "__main__":
    torch_xla.launch(train)
"""

#: One device: numbers that only the backward pass uses, and graphs that grow with operations of the
#: CPU in them. The last function never ends a step.
HIDDEN = """\
import torch
import torch_xla

device = torch_xla.device()
x = torch.randn(4, 6).to(device)


def weight():
    w = torch.ones(6, requires_grad=True, device=device)
    return w, torch.optim.SGD([w], lr=0.5)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, factor):
        ctx.factor = factor
        return value.tanh()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None  # line OWN_BACKWARD_MADE


def own_backward():
    w, optimizer = weight()
    for step in range(6):
        optimizer.zero_grad()
        Scaled.apply((x * w).sum(), 0.25 if step < 5 else 1.0).backward()
        optimizer.step()
        torch_xla.sync()  # line OWN_BACKWARD


def dropped_loss():
    w, optimizer = weight()
    for scale in (0.25, 0.3, 0.5, 0.75, 1.0):
        optimizer.zero_grad()
        ((x * w).cos().sum() * scale).backward()  # line DROPPED_MADE
        optimizer.step()
        torch_xla.sync()  # line DROPPED


def learning_rate():
    w, optimizer = weight()
    for rate in (0.5, 0.4, 0.3, 0.2, 1.0):
        optimizer.zero_grad()
        (x * w).sin().sum().backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()  # line RATE_MADE
        torch_xla.sync()  # line RATE


def powers():
    w, optimizer = weight()
    for exponent in range(2, 7):
        optimizer.zero_grad()
        (x * w).abs().pow(exponent).sum().backward()  # line POWER_MADE
        optimizer.step()
        torch_xla.sync()  # line POWER


def repeats():
    w, optimizer = weight()
    for step in range(5):
        optimizer.zero_grad()
        loss = (x * w).atan().repeat(step + 2, 1).sum()  # line REPEAT_MADE
        loss.backward()
        optimizer.step()
        torch_xla.sync()  # line REPEAT


def larger(w):
    image = w[:4].reshape(1, 1, 2, 2)
    return torch.nn.functional.interpolate(image, scale_factor=2, mode="bilinear")


def kept_loss():
    w, optimizer = weight()
    total = 0.0
    for step in range(6):
        total = total + larger(w).tanh().sum()
        optimizer.zero_grad()
        total.backward(retain_graph=True)
        optimizer.step()
        torch_xla.sync()  # line KEPT


def no_step_end():
    w, optimizer = weight()
    for step in range(7):
        optimizer.zero_grad()
        larger(w).sigmoid().sum().backward()  # line NEVER_ENDED
        optimizer.step()


for reason in (
    own_backward, dropped_loss, learning_rate, powers, repeats, kept_loss, no_step_end,
):
    torch.manual_seed(0)
    reason()
"""
