def execute(tool_call_id, params, signal=None, on_update=None):
    return {"content": [{"type": "text", "text": f"Hello, {params['name']}!"}]}
