program block mesh(dp=2, tp=2)
  param %w: f32[2, 4, 4] "layers.*.fc.weight"
  input %x: f32[3, 4] "hidden states"
  const %mask: bool[3, 1]
  %out, %"h's rows" = scan %x, %w, %mask {length=2, carry=1, xs=1, reverse=false} body layer {  @ model.py:20 layers | for layer in self.layers:
    carry %h: f32[3, 4]
    xs %w: f32[4, 4]
    const %mask: bool[3, 1]
    %1 = mm %h, %w : f32[3, 4]                                    @ model.py:14 layers.*.fc | h = self.fc(h)
    %2 = all_reduce %1 {mesh_dim=tp, reduce=sum} : f32[3, 4]      @ "my model.py":15 | "print(\"h\") # \u2028"
    %3 = full {shape=[], value=0.0, dtype=f32} : f32[]
    %4 = where %mask, %2, %3 : f32[3, 4]
    %5 = mul_scalar %4 {value=1/3} : f32[3, 4]
    %6 = add_scalar %5 {value=1e-05} : f32[3, 4]
    return carry %6, ys %5
  }
  %1 = iota {shape=[4], dim=0, offset=-2*dp+4*tp+1, dtype=i64} : i64[4]
  return %out "hidden", loss %"h's rows", %1
