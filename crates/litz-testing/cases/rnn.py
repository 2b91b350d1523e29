"""Recurrent networks."""

from harness import *


def weights(gates, layers, directions, features, width, biases, projection=0):
    state = projection or width
    params = []
    for layer in range(layers):
        inputs = state * directions if layer else features
        for _ in range(directions):
            params += [rand(gates * width, inputs) / 2, rand(gates * width, state) / 2]
            params += [rand(gates * width), rand(gates * width)] if biases else []
            params += [rand(state, width)] if projection else []
    return params


networks = [(aten.lstm.input, 4), (aten.gru.input, 3), (aten.rnn_tanh.input, 1), (aten.rnn_relu.input, 1)]
for op, gates in networks:
    for layers, directions, biases, batch_first in [(1, 1, True, False), (2, 1, False, True), (2, 2, True, True), (1, 2, True, False)]:
        x = rand(3, 2, 4)
        batch = 3 if batch_first else 2
        hidden, cell = rand(layers * directions, batch, 2), rand(layers * directions, batch, 2)
        hx = [hidden, cell] if gates == 4 else hidden
        params = weights(gates, layers, directions, 4, 2, biases)
        case(op, x, hx, params, biases, layers, 0.0, False, directions == 2, batch_first)
params = weights(4, 2, 2, 4, 3, True, 2)
case(aten.lstm.input, rand(3, 2, 4), [rand(4, 2, 2), rand(4, 2, 3)], params, True, 2, 0.0, False, True, False)
params = weights(3, 1, 1, 4, 2, True)
case(aten.gru.input, rand(1, 2, 4), rand(1, 2, 2), params, True, 1, 0.5, True, False, False)
params = [p.double() for p in weights(4, 1, 1, 4, 2, True)]
case(aten.lstm.input, rand(2, 1, 4, dtype=f64), [rand(1, 1, 2, dtype=f64), rand(1, 1, 2, dtype=f64)], params, True, 1, 0.0, False, False, False)
for op, gates in [(aten.gru_cell.default, 3), (aten.rnn_tanh_cell.default, 1), (aten.rnn_relu_cell.default, 1)]:
    case(op, rand(2, 4), rand(2, 3), *weights(gates, 1, 1, 4, 3, True))
    case(op, rand(2, 4), rand(2, 3), *weights(gates, 1, 1, 4, 3, False))
case(aten.lstm_cell.default, rand(2, 4), [rand(2, 3), rand(2, 3)], *weights(4, 1, 1, 4, 3, True))
case(aten.lstm_cell.default, rand(2, 4), [rand(2, 3), rand(2, 3)], *weights(4, 1, 1, 4, 3, False))


def encoder(length, features, heads, width, use_gelu, norm_first, dtype=f32):
    of = lambda *sizes: (rand(*sizes) / 2).to(dtype)
    qkv, output = [of(3 * features, features), of(3 * features)], [of(features, features), of(features)]
    norms = [of(features), of(features), of(features), of(features)]
    layers = [of(width, features), of(width), of(features, width), of(features)]
    case(
        aten._transformer_encoder_layer_fwd.default, of(2, length, features), features, heads, *qkv, *output, use_gelu, norm_first, 1e-5, *norms, *layers
    )


encoder(5, 8, 2, 12, False, False)
encoder(4, 6, 3, 5, True, True)
encoder(1, 4, 1, 4, True, False)
